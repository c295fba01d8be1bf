import { loadCommands } from '../../src/commands/all.ts'

/** `docs/commands.md`: the help of every command, from the table that the command line itself is read by. */
export async function renderCommandsPage(): Promise<string> {
  const commands = Object.entries(await loadCommands())
  const contents = commands.map(([name, { summary }]) => `| [\`penny ${name}\`](#penny-${name}) | ${summary} |`)
  const sections = commands.map(([name, { summary, usage, options }]) => {
    const names = Object.keys(options).map((option) => `\`--${option}\``)
    const tail = names.length === 0 ? '' : `\nOptions: ${names.join(', ')}.\n`
    return `## penny ${name}\n\n${capital(summary)}.\n\n\`\`\`\n  ${usage}\n\`\`\`\n${tail}`
  })
  return `# The command

Generated from the command table by \`npm run generate\`; do not edit.

Commands work beside a running service, given only its \`DATA_DIR\`: where the database is an outside one, the start leaves its address
there, in \`database-url\`, mode 0600. \`DATABASE_URL\` goes before it.
Every command takes \`--json\`, for programs, and \`--help\`. Exit codes: 0 done, 1 failed, 2 called wrongly. Completion for shells:
[\`penny completion\`](#penny-completion).

| command | what it does |
|---|---|
${contents.join('\n')}

${sections.join('\n')}`
}

function capital(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1)
}
