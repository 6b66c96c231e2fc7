// Sets the colours chosen last time, before anything is painted.
try {
  const theme = localStorage.getItem('tokamak.theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch {
  // No storage: automatic colours.
}
