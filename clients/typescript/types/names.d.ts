/**
 * Escapes each segment of a name. It refuses names that would arrive as another name or another operation; the gateway
 * checks all other rules.
 *
 * @param {string} name
 */
export function namePath(name: string): string;
export function recordPath(resource: string, key: string): string;
