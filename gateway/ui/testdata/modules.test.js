import assert from 'node:assert/strict';
import {readdirSync} from 'node:fs';
import {test} from 'node:test';
import {fileURLToPath, pathToFileURL} from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const modules = readdirSync(root, {recursive: true})
  .filter((name) => name.endsWith('.js') && !name.startsWith('testdata')).sort();

// Importing a module also links its imports: a name that is not exported fails. Two modules run code when they are
// loaded, which needs a page.
const needPage = ['app.js', 'theme.js'];

test('every module can be linked', async () => {
  assert.ok(modules.length > 20);
  for (const name of modules) {
    try {
      await import(pathToFileURL(root + name));
      assert.ok(!needPage.includes(name), name);
    } catch (error) {
      if (!(needPage.includes(name) && error instanceof ReferenceError)) assert.fail(`${name}: ${error.message}`);
    }
  }
});

test('every page exports a title and mount', async () => {
  const {pages} = await import('../router.js');
  for (const module of pages.flatMap((page) => [page.module, page.one]).filter(Boolean)) {
    const page = await import(`../pages/${module}.js`);
    assert.ok(['string', 'function'].includes(typeof page.title), module);
    assert.equal(typeof page.mount, 'function', module);
  }
});
