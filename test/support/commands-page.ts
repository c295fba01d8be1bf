import { loadCommands } from '../../src/commands/all.ts'
import { usageText } from '../../src/commands/help.ts'

/** `docs/commands.md`: the help of every command, from the table that the command line itself is read by. */
export async function renderCommandsPage(): Promise<string> {
  const commands = Object.entries(await loadCommands())
  const contents = commands.map(
    ([name, { path, summary }]) =>
      `| [\`penny ${path}\`](#penny-${path.replaceAll(' ', '-')}) | ${summary}${path === name ? '' : `; also \`penny ${name}\``} |`,
  )
  const sections = commands.map(([, { path, summary, usage, options }]) => {
    const names = Object.keys(options).map((option) => `\`--${option}\``)
    const tail = names.length === 0 ? '' : `\nOptions: ${names.join(', ')}.\n`
    return `## penny ${path}\n\n${capital(summary)}.\n\n\`\`\`\n${usageText(usage)}\n\`\`\`\n${tail}`
  })
  return `# The command

Generated from the command table by \`npm run generate\`; do not edit.

Customer commands talk to a service over HTTP. On a machine with a service they find it by its \`DATA_DIR\`, while it runs, and act as the operator for any account (\`--account\`): the file \`control.json\` there (mode 0600) has the address and the token of a port that only this machine can reach. Elsewhere they use the login of \`penny login\`.

Commands of the operator use the database, also while the service is stopped. With an external database, the service writes its URL to the file \`database-url\` in \`DATA_DIR\` (mode 0600); \`DATABASE_URL\` takes precedence. Commands that check a setting need it in their environment, too: \`payout\` (\`PAYOUT_ADDRESS\`) and \`withdraw\` (\`WITHDRAWAL_MIN_USDC\`).

Every command has \`--help\` and \`--json\`. Exit codes: 0 success, 1 failure, 2 wrong arguments.

| command | what it does |
|---|---|
${contents.join('\n')}

${sections.join('\n')}`
}

function capital(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1)
}
