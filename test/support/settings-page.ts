import { describeDefault, type Setting } from '../../src/config/setting.ts'
import { settingGroups } from '../../src/config/settings.ts'

/** `docs/settings.md`: every setting, from the list that the configuration is read by. */
export function renderSettingsPage(): string {
  const sections = Object.entries(settingGroups).map(([title, group]) => {
    const rows = Object.entries<Setting>(group).map(
      ([name, setting]) =>
        `| \`${name}\`${setting.isSecret ? '*' : ''} | ${setting.about} | ${describeDefault(setting)} | ${setting.range ?? ''} |`,
    )
    return `## ${title}\n\n| variable | what it does | default | range |\n|---|---|---|---|\n${rows.join('\n')}\n`
  })
  return `# Settings

Generated from the list of settings by \`npm run generate\`; do not edit.

All settings are environment variables. They are read and checked at start: a bad value stops the start with one line that names it. An
empty value counts as not set. A secret (marked *) may be in a file: name the file in the variable's \`_FILE\` twin, for example
\`MASTER_KEY_FILE\`. With \`NODE_ENV=production\` the service refuses to run on embedded defaults unless it is started with
\`--allow-embedded\`. Times end in their unit (\`_MS\`: milliseconds), sizes are in bytes, amounts in USDC.
[\`penny config\`](commands.md#penny-config) shows the values in use and where each comes from;
\`penny config NAME\` explains one.

${sections.join('\n')}`
}
