// Sets the theme before anything is painted. `auto` follows the system for as long as it is chosen.
;(() => {
  const dark = matchMedia('(prefers-color-scheme: dark)')
  const apply = () => {
    let choice = 'auto'
    try {
      choice = localStorage.getItem('penny.theme') ?? 'auto'
    } catch {
      // Storage may be forbidden; the system's choice is then the only one.
    }
    const isDark = choice === 'dark' || (choice !== 'light' && dark.matches)
    document.documentElement.dataset.theme = isDark ? 'dark' : 'light'
  }
  apply()
  dark.addEventListener('change', apply)
  window.addEventListener('penny:theme', apply)
})()
