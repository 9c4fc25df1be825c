// Before the first paint, so that a dark page never flashes white.
let scheme = 'auto'
try {
  scheme = localStorage.getItem('mantine-color-scheme-value') ?? 'auto'
} catch {
  // Storage is blocked: the system's scheme counts.
}
const isDark = scheme === 'dark' || (scheme !== 'light' && matchMedia('(prefers-color-scheme: dark)').matches)
document.documentElement.setAttribute('data-mantine-color-scheme', isDark ? 'dark' : 'light')
