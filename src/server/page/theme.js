// Before anything is painted: the colours that were chosen here the last time.
try {
  const theme = localStorage.getItem('tokamak.theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch {
  // No storage: automatic colours.
}
