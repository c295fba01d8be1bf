/**
 * Asks solc's model checker (CHC, solved by the z3 on the PATH) about the contracts in `proofs/`, and prints what is proved, violated or
 * not decided in time. Fails when anything is violated.
 */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { resolveImport } from './compiler.ts'

type Compiler = {
  compile(input: string, callbacks: { import: typeof resolveImport; smtSolver(query: string): object }): string
}
type Message = { readonly errorCode: string; readonly formattedMessage: string }

const secondsMax = Number(process.env.PROVE_SECONDS ?? 60)
const names = ['DebitKeepsSum', 'SumOfBalances', 'NonceOnce']
/** solc's code of a proof. */
const proved = '9576'
const violated = /: Warning: CHC: .* happens here/

if (spawnSync('z3', ['--version']).error !== undefined) throw new Error('z3 is not installed: apt-get install z3')
const solc: Compiler = createRequire(import.meta.url)('solc')
const folder = mkdtempSync(join(tmpdir(), 'penny-proofs-'))
try {
  for (const name of names) {
    const source = `proofs/${name}.sol`
    const found = resolveImport(source)
    if ('error' in found) throw new Error(found.error)
    const input = {
      language: 'Solidity',
      sources: { [source]: { content: found.contents } },
      settings: {
        modelChecker: {
          contracts: { [source]: [name] },
          engine: 'chc',
          solvers: ['smtlib2'],
          targets: ['assert', 'underflow', 'overflow'],
          showProvedSafe: true,
          showUnproved: true,
        },
      },
    }
    let queries = 0
    const solve = (query: string) => {
      queries += 1
      return { contents: askZ3(query) }
    }
    const output = solc.compile(JSON.stringify(input), { import: resolveImport, smtSolver: solve })
    const messages = (JSON.parse(output) as { errors?: readonly Message[] }).errors ?? []
    const safe = messages.filter(({ errorCode }) => errorCode === proved)
    const broken = messages.filter(({ formattedMessage }) => violated.test(formattedMessage))
    for (const { formattedMessage } of [...safe, ...broken]) console.log(formattedMessage)
    console.log(`${name}: ${safe.length} proved, ${broken.length} violated, of ${queries} queries\n`)
    if (broken.length > 0) process.exitCode = 1
  }
} finally {
  rmSync(folder, { recursive: true, force: true })
}

/** z3's answer; `unknown` when it has none in time. Not solc's own caller, which gives up the whole run when z3 takes ten seconds. */
function askZ3(query: string): string {
  const file = join(folder, 'query.smt2')
  writeFileSync(file, query)
  const options = [
    'rewriter.pull_cheap_ite=true',
    'fp.spacer.q3.use_qgen=true',
    'fp.spacer.mbqi=false',
    'fp.spacer.ground_pobs=false',
  ]
  const { stdout } = spawnSync('z3', ['-smt2', `-T:${secondsMax}`, ...options, file], {
    encoding: 'utf8',
    maxBuffer: 2 ** 28,
  })
  return /^(sat|unsat)/.test(stdout) ? stdout : 'unknown'
}
