// The stream that keeps a list live.
//
//   follow(app, {refresh, overview})     calls refresh about every two seconds, and after each connect. overview(data)
//                                        gets the events of the overview, if the caller may see it.
//
// Only a principal that may observe all names may see the overview. For others the page asks by itself; the stream of
// their rejections shows whether the gateway can be reached.

import {mayAll, mayAny} from './account.js';

export function follow(app, {refresh, overview}) {
  if (mayAll('observe')) {
    app.stream({path: '/v1/overview/stream', connected: refresh, on: {overview(data) {
      overview?.(data);
      refresh();
    }}});
    return;
  }
  if (mayAny('observe')) app.stream({path: '/v1/rejections/stream', connected: refresh, on: {}});
  app.every(2000, refresh);
}
