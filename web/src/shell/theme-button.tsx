import { IconButton } from '../ui/button.tsx'
import { type Theme, useTheme } from './preferences.ts'

const turn: Readonly<Record<Theme, Theme>> = { auto: 'light', light: 'dark', dark: 'auto' }
const looks = {
  auto: ['auto', 'Theme: system. Change'],
  light: ['sun', 'Theme: light. Change'],
  dark: ['moon', 'Theme: dark. Change'],
} as const

export function ThemeButton() {
  const [theme, setTheme] = useTheme()
  const [icon, label] = looks[theme]
  return <IconButton icon={icon} label={label} onClick={() => setTheme(turn[theme])} />
}
