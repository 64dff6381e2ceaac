// The colour scheme that was chosen, set before anything is painted: a classic script, for a module would come too late.
// It is kept in localStorage as "light" or "dark"; "auto" follows the system.
(function () {
  'use strict';
  const key = 'fencegate-theme';
  const themes = ['auto', 'light', 'dark'];

  function read() {
    try {
      const kept = localStorage.getItem(key);
      return themes.includes(kept) ? kept : 'auto';
    } catch {
      return 'auto'; // storage is forbidden: the choice lasts as long as the page
    }
  }

  function set(theme) {
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem(key, theme);
    } catch {
      // as above
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
