import { loadCommands } from './all.ts'
import { type Command, CommandError, commonOptions } from './command.ts'

const shells = { bash: completeBash, zsh: completeZsh, fish: completeFish }

export const completionCommand: Command = {
  usage: [
    ['penny completion bash', 'Add to ~/.bashrc: source <(penny completion bash)'],
    ['penny completion zsh', `penny completion zsh > "\${fpath[1]}/_penny"`],
    ['penny completion fish', 'penny completion fish > ~/.config/fish/completions/penny.fish'],
  ],
  options: {},
  verbs: Object.keys(shells),
  wordsMax: 1,
  async run({ words: [shell = ''], output }) {
    if (!(shell in shells)) throw new CommandError('Which shell? penny completion bash, zsh or fish.', 2)
    const script = shells[shell as keyof typeof shells](await readWords())
    output.write(output.json ? `${JSON.stringify({ shell, script })}\n` : script)
    return 0
  },
}

type Words = {
  readonly name: string
  readonly summary: string
  readonly verbs: readonly string[]
  readonly options: readonly string[]
}

async function readWords(): Promise<readonly Words[]> {
  return Object.entries(await loadCommands()).map(([name, { summary, verbs = [], options }]) => ({
    name,
    summary,
    verbs,
    options: Object.keys({ ...options, ...commonOptions }).map((option) => `--${option}`),
  }))
}

function completeBash(table: readonly Words[]): string {
  const cases = table.map(
    ({ name, verbs, options }) => `    ${name}) verbs="${verbs.join(' ')}"; options="${options.join(' ')}" ;;`,
  )
  return `_penny() {
  local word="\${COMP_WORDS[COMP_CWORD]}" verbs options
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "${table.map(({ name }) => name).join(' ')}" -- "$word"))
    return
  fi
  case "\${COMP_WORDS[1]}" in
${cases.join('\n')}
    *) return ;;
  esac
  if [[ "$word" == -* ]]; then COMPREPLY=($(compgen -W "$options" -- "$word"))
  elif [ "$COMP_CWORD" -eq 2 ] && [ -n "$verbs" ]; then COMPREPLY=($(compgen -W "$verbs" -- "$word"))
  else COMPREPLY=($(compgen -f -- "$word"))
  fi
}
complete -F _penny penny
`
}

function completeZsh(table: readonly Words[]): string {
  const names = table.map(({ name, summary }) => `    '${name}:${quoteSingle(summary)}'`)
  const cases = table.map(
    ({ name, verbs, options }) =>
      `    ${name}) ${verbs.length === 0 ? '' : `(( CURRENT == 3 )) && compadd ${verbs.join(' ')}; `}compadd -- ${options.join(' ')}; _files ;;`,
  )
  return `#compdef penny
_penny() {
  local -a commands
  commands=(
${names.join('\n')}
  )
  if (( CURRENT == 2 )); then _describe command commands; return; fi
  case "\${words[2]}" in
${cases.join('\n')}
  esac
}
_penny "$@"
`
}

function completeFish(table: readonly Words[]): string {
  const lines = table.flatMap(({ name, summary, verbs, options }) => [
    `complete -c penny -n __fish_use_subcommand -a ${name} -d '${quoteSingle(summary)}'`,
    ...(verbs.length === 0
      ? []
      : [`complete -c penny -n '__fish_seen_subcommand_from ${name}' -a '${verbs.join(' ')}'`]),
    ...options.map(
      (option) => `complete -c penny -n '__fish_seen_subcommand_from ${name}' -l ${option.replace('--', '')}`,
    ),
  ])
  return `${lines.join('\n')}\n`
}

/** Within single quotes, only a single quote must be replaced. Our sentences use typographic apostrophes. */
function quoteSingle(text: string): string {
  return text.replaceAll("'", '’')
}
