/** One call of Client.writes. */
export class Writes {
    /** @param {(call: import('./calls.js').Call, read: (answer: Answer) => any) => Promise<any>} send */
    constructor(send: (call: import("./calls.js").Call, read: (answer: Answer) => any) => Promise<any>);
    /** @param {BulkWrite[]} writes @param {AbortSignal} [signal] @returns {Promise<WriteOutcome[]>} */
    run(writes: BulkWrite[], signal?: AbortSignal): Promise<WriteOutcome[]>;
    #private;
}
export type Answer = import("./calls.js").Answer;
/**
 * One write, with the fields of POST /v1/writes in docs/api.md.
 */
export type BulkWrite = {
    op: "put" | "delete";
    resource: string;
    key: string;
    value?: unknown;
    value_base64?: string;
    content_type?: string;
    if_version?: number;
    fencing_token: number;
    sequence?: number;
    lease_id?: string;
};
/**
 * What became of one write: result, or error.
 */
export type WriteOutcome = {
    result?: {
        version: number;
        fencingToken: number;
        sequence: number;
        replayed: boolean;
    };
    error?: FencegateError;
};
export type Sent = {
    index: number;
    text: string;
    numbered: boolean;
    doubt: Doubt;
};
import { FencegateError } from './errors.js';
import { Doubt } from './retry.js';
