// What the documentation adds when scripts run: theme, copy buttons, tabs, and results while typing. Pages are complete without it.

const themeName = 'penny.theme'
const languageName = 'penny.language'
const searchDelayMs = 120

applyTheme(read(themeName))
// The style then leaves room for what this script adds, so that nothing moves.
document.documentElement.classList.add('js')
document.addEventListener('DOMContentLoaded', () => {
  startThemeButton()
  for (const group of document.querySelectorAll('.tabs')) makeTabs(group)
  for (const block of document.querySelectorAll('main pre')) addCopyButton(block)
  searchWhileTyping(document.querySelector('form[role=search]'))
})

function read(name) {
  try {
    return localStorage.getItem(name)
  } catch {
    return null
  }
}

function write(name, value) {
  try {
    localStorage.setItem(name, value)
  } catch {
    // Storage may be full or forbidden: the choice then lasts until the page is left.
  }
}

/** Shares its setting with the dashboard: light, dark, or as the system is. */
function applyTheme(theme) {
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme
  else delete document.documentElement.dataset.theme
}

function startThemeButton() {
  const button = document.querySelector('.theme')
  const isDark = () =>
    (document.documentElement.dataset.theme ??
      (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark'
  const label = () => {
    button.textContent = isDark() ? 'Light' : 'Dark'
    button.ariaLabel = isDark() ? 'Use the light theme' : 'Use the dark theme'
  }
  button.addEventListener('click', () => {
    const theme = isDark() ? 'light' : 'dark'
    write(themeName, theme)
    applyTheme(theme)
    label()
  })
  label()
}

function addCopyButton(block) {
  const button = element('button', { type: 'button', className: 'copy', textContent: 'Copy' })
  button.addEventListener('click', async () => {
    await navigator.clipboard.writeText(block.textContent.trimEnd())
    button.textContent = 'Copied'
    announce('Copied')
    setTimeout(() => {
      button.textContent = 'Copy'
    }, 2000)
  })
  const frame = element('div', { className: 'code' })
  block.replaceWith(frame)
  frame.append(block, button)
}

/** A group of code blocks shows one language at a time, the same on every page. Arrow keys move between them. */
function makeTabs(group) {
  const figures = [...group.querySelectorAll('figure')]
  const list = element('div', { role: 'tablist', className: 'tablist' })
  list.ariaLabel = 'Language'
  const tabs = figures.map((figure) => {
    const caption = figure.querySelector('figcaption')
    const tab = element('button', { type: 'button', role: 'tab', textContent: caption.textContent })
    figure.role = 'tabpanel'
    figure.ariaLabel = caption.textContent
    caption.remove()
    tab.addEventListener('click', () => chooseLanguage(tab.textContent))
    return tab
  })
  list.addEventListener('keydown', ({ key }) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[key]
    if (step === undefined) return
    const next = tabs[(tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length]
    chooseLanguage(next.textContent)
    next.focus()
  })
  const show = (language) => {
    const chosen = Math.max(
      0,
      tabs.findIndex((tab) => tab.textContent === language),
    )
    for (const [index, tab] of tabs.entries()) {
      tab.ariaSelected = String(index === chosen)
      tab.tabIndex = index === chosen ? 0 : -1
      figures[index].hidden = index !== chosen
    }
  }
  list.append(...tabs)
  group.prepend(list)
  group.addEventListener('penny:language', ({ detail }) => show(detail))
  show(read(languageName))
}

function chooseLanguage(language) {
  write(languageName, language)
  for (const group of document.querySelectorAll('.tabs'))
    group.dispatchEvent(new CustomEvent('penny:language', { detail: language }))
}

/** Results appear below the field. Only the newest query's answer is shown; Enter opens the full list. */
function searchWhileTyping(form) {
  const field = form.querySelector('input')
  const results = element('ul', { className: 'results', hidden: true })
  form.append(results)
  let timer
  let newest = 0
  field.addEventListener('input', () => {
    clearTimeout(timer)
    timer = setTimeout(ask, searchDelayMs)
  })
  form.addEventListener('keydown', (event) => {
    const links = [...results.querySelectorAll('a')]
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    if (event.key === 'Escape') results.hidden = true
    if (step === undefined || results.hidden || links.length === 0) return
    event.preventDefault()
    const at = links.indexOf(document.activeElement) + step
    if (at < 0) field.focus()
    else links[Math.min(at, links.length - 1)].focus()
  })
  document.addEventListener('click', ({ target }) => {
    if (!form.contains(target)) results.hidden = true
  })
  document.addEventListener('keydown', (event) => {
    if (event.key !== '/' || /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? '')) return
    event.preventDefault()
    field.focus()
  })

  async function ask() {
    newest += 1
    const number = newest
    const query = field.value.trim()
    if (query === '') {
      results.hidden = true
      return
    }
    const response = await fetch(`/docs/search.json?q=${encodeURIComponent(query)}`)
    if (!response.ok || number !== newest) return
    const { hits } = await response.json()
    if (number !== newest) return
    results.replaceChildren(...(hits.length === 0 ? [element('li', { textContent: 'No matches.' })] : hits.map(entry)))
    results.hidden = false
    announce(hits.length === 0 ? 'No matches' : `${hits.length} results`)
  }

  function entry({ title, heading, path, excerpt }) {
    const link = element('a', { href: path })
    link.append(element('strong', { textContent: heading === title ? title : `${title} · ${heading}` }))
    if (excerpt !== '') link.append(element('span', { textContent: excerpt }))
    const item = element('li', {})
    item.append(link)
    return item
  }
}

function announce(text) {
  let region = document.querySelector('.hidden[aria-live]')
  if (region === null) {
    region = element('div', { className: 'hidden' })
    region.ariaLive = 'polite'
    document.body.append(region)
  }
  region.textContent = text
}

function element(name, properties) {
  return Object.assign(document.createElement(name), properties)
}
