import { describeConfig } from '../config/config.ts'
import { describeDefault, type Setting } from '../config/setting.ts'
import { type SettingName, settings } from '../config/settings.ts'
import { type Command, CommandError, type Output } from './command.ts'
import { printRows } from './table.ts'

export const configCommand: Command = {
  usage: [
    [
      'penny config',
      'Secrets are hidden. Source "file" means that the value comes from the variable ending in _FILE. Settings of a search provider or a chain are listed once it is configured',
    ],
    ['--set', 'Only settings that are set'],
    ['penny config NAME', 'Explain one setting, with its value and its default'],
  ],
  options: { set: { type: 'boolean' } },
  wordsMax: 1,
  async run({ words: [word], options, output }) {
    if (word !== undefined) return printSetting(word.toUpperCase(), output)
    const entries = describeConfig().filter(({ origin }) => options.set !== true || origin !== 'default')
    printRows(
      output,
      entries.map(({ name, value, origin }) => ({ name, value: value ?? null, origin })),
    )
    return 0
  },
}

function printSetting(name: string, output: Output): number {
  if (!Object.hasOwn(settings, name)) throw new CommandError(`Unknown setting ${name}. penny config lists all.`, 2)
  const setting: Setting = settings[name as SettingName]
  const { about, range } = setting
  const unset = describeDefault(setting).replaceAll('`', '')
  const entry = describeConfig().find((one) => one.name === name)
  const { value, origin = 'default' } = entry ?? {}
  if (output.json) {
    const row = { name, value: value ?? null, origin, default: unset, range: range ?? null, about }
    output.write(`${JSON.stringify(row, null, 2)}\n`)
  } else {
    const allowed = range === undefined ? '' : `Allowed: ${range}\n`
    output.write(`${name}: ${about}\nDefault: ${unset}\n${allowed}Now: ${value ?? 'not set'} (${origin})\n`)
  }
  return 0
}
