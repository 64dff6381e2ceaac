import assert from 'node:assert/strict';
import {readdirSync} from 'node:fs';
import {test} from 'node:test';
import {fileURLToPath, pathToFileURL} from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const modules = readdirSync(root, {recursive: true}).filter((name) => name.endsWith('.js') && !name.startsWith('testdata')).sort();

// To import a module reads and links all that it imports: a name that is not exported is found, too. Two do something when they are loaded, for which
// there must be a page.
const atOnce = ['app.js', 'theme.js'];

test('every module can be linked', async () => {
  assert.ok(modules.length > 20);
  for (const name of modules) {
    try {
      await import(pathToFileURL(root + name));
      assert.ok(!atOnce.includes(name), name);
    } catch (error) {
      if (!(atOnce.includes(name) && error instanceof ReferenceError)) assert.fail(`${name}: ${error.message}`);
    }
  }
});

test('every page has a title, and can be mounted', async () => {
  const {pages} = await import('../router.js');
  for (const module of pages.flatMap((page) => [page.module, page.one]).filter(Boolean)) {
    const page = await import(`../pages/${module}.js`);
    assert.ok(['string', 'function'].includes(typeof page.title), module);
    assert.equal(typeof page.mount, 'function', module);
  }
});
