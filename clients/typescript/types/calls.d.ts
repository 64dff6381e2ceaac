/**
 * A request. waitMs is for how long the gateway may wait before it answers; limitMs limits the time of one gateway
 * beyond that, instead of the client's answer timeout. Where once is set, no other gateway is asked after an attempt that
 * may have been applied.
 *
 * @typedef {{
 *   method: string, path: string, headers?: Record<string, string>, body?: string | Uint8Array, waitMs?: number,
 *   limitMs?: number | undefined, signal?: AbortSignal | undefined, once?: boolean
 * }} Call
 */
/** @typedef {{status: number, headers: Headers, body: Uint8Array}} Answer */
/**
 * A credential, or what returns the current one.
 *
 * @typedef {string | (() => string | Promise<string>)} Token
 */
/** @param {unknown} value */
export function jsonText(value: unknown): string;
/** @param {string} method @param {string} path @param {unknown} body @returns {Call} */
export function withJSON(method: string, path: string, body: unknown): Call;
/**
 * Returns what reads an answer as a JSON object that has these fields.
 *
 * @param {...string} fields @returns {(answer: Answer) => any}
 */
export function asObject(...fields: string[]): (answer: Answer) => any;
/** Sends calls to the gateways of one database. It stays with one that works. */
export class Caller {
    /**
     * @param {string[]} urls
     * @param {{
     *   token: Token | undefined, headers: Record<string, string>, answerTimeoutMs: number,
     *   answerBytesMax: number, fetch: typeof fetch
     * }} options
     */
    constructor(urls: string[], options: {
        token: Token | undefined;
        headers: Record<string, string>;
        answerTimeoutMs: number;
        answerBytesMax: number;
        fetch: typeof fetch;
    });
    /**
     * Asks the gateways in turn, until one serves. Every call may arrive twice, unless it is once: acquires have a request_id
     * and writes a number, and renewals, releases and reads may be repeated by their nature.
     *
     * @template T @param {Call} call @param {(answer: Answer) => T} read @returns {Promise<T>}
     */
    send<T>(call: Call, read: (answer: Answer) => T): Promise<T>;
    #private;
}
/**
 * A request. waitMs is for how long the gateway may wait before it answers; limitMs limits the time of one gateway
 * beyond that, instead of the client's answer timeout. Where once is set, no other gateway is asked after an attempt that
 * may have been applied.
 */
export type Call = {
    method: string;
    path: string;
    headers?: Record<string, string>;
    body?: string | Uint8Array;
    waitMs?: number;
    limitMs?: number | undefined;
    signal?: AbortSignal | undefined;
    once?: boolean;
};
export type Answer = {
    status: number;
    headers: Headers;
    body: Uint8Array;
};
/**
 * A credential, or what returns the current one.
 */
export type Token = string | (() => string | Promise<string>);
