// The chosen colour scheme, set before the first paint: a classic script, since a module would run too late.
// localStorage keeps it as "light" or "dark"; "auto" follows the system.
(function () {
  'use strict';
  const key = 'fencegate-theme';
  const themes = ['auto', 'light', 'dark'];

  function read() {
    try {
      const kept = localStorage.getItem(key);
      return themes.includes(kept) ? kept : 'auto';
    } catch {
      return 'auto'; // storage is forbidden: the choice lasts until the page is closed
    }
  }

  function set(theme) {
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem(key, theme);
    } catch {
      // storage is forbidden
    }
  }

  document.documentElement.dataset.theme = read();
  window.fencegateTheme = {
    get: () => document.documentElement.dataset.theme,
    next() {
      const at = themes.indexOf(document.documentElement.dataset.theme);
      set(themes[(at + 1) % themes.length]);
    },
  };
})();
