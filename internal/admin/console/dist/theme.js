// Sets the chosen theme before the first paint. The policy of the page allows no inline script.
try {
  const { theme } = JSON.parse(localStorage.getItem("holdfast.settings") ?? "{}");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {}
