// Package dashboard tests the dashboard in a real Chromium, before a real gateway process and a real PostgreSQL. It
// contains only tests.
//
// A test process starts the browser once. Each tab has a browser context of its own, so that tests share no state. A
// test fails if a page
//
//   - writes an error to the console, or leaves an exception or a rejected promise uncaught;
//   - violates its content security policy;
//   - opens a dialog of the browser (alert, confirm, prompt);
//   - sends a request to any host but the gateway.
//
// Tests measure no time. Each wait names the event that it waits for, with one limit that a busy machine does not
// reach.
//
// If FENCEGATE_ARTIFACTS names a directory, tests store pictures of pages there, also of each page on which a test
// failed.
package dashboard
