// Package dashboard tests the dashboard as people use it: in a real Chromium, before a real gateway process and a real PostgreSQL. There is
// nothing in it but tests.
//
// The browser is started once for a test process. Each test has a browser context of its own, so that nothing is kept from one to the next,
// and fails on whatever a page must never do:
//
//   - write an error to the console, or leave an exception or a rejected promise uncaught;
//   - break its own content security policy;
//   - open a dialog of the browser's (alert, confirm, prompt);
//   - send a request to anything but the gateway.
//
// Nothing is timed. A test waits until what it looks for is there, for as long as a busy machine may take.
//
// Pictures of pages are kept in the directory that FENCEGATE_ARTIFACTS names, if it is set; so is one of each page on which a test failed.
package dashboard
