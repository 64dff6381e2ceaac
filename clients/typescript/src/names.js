// Names of locks, resources and keys in paths.
import { local } from './errors.js';

const reserved = ['acquire', 'renew', 'release', 'break', 'watch', 'records', 'fence'];

/**
 * Escapes each segment of a name. It refuses names that would arrive as another name or another operation; the gateway
 * checks all other rules.
 *
 * @param {string} name
 */
export function namePath(name) {
  return name.split('/').map((segment) => {
    if (['', '.', '..'].includes(segment)) {
      throw local('invalid_name', `${JSON.stringify(name)}: no segment of a name is empty, . or ..`);
    }
    if (reserved.includes(segment)) {
      throw local('invalid_name', `${JSON.stringify(name)}: ${segment} is a word of the API, and can't be a segment`);
    }
    return encodeURIComponent(segment);
  }).join('/');
}

/** @param {string} resource @param {string} key */
export const recordPath = (resource, key) => `/v1/resources/${namePath(resource)}/records/${namePath(key)}`;
