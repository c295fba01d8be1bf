import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const root = fileURLToPath(new URL('../..', import.meta.url))

/** The last commit with one payment per request, one upstream and no providers. */
export const commitBefore = 'ece3ee5'

export type TreeBefore = {
  /** Imports a module of that commit by its path in the repository. */
  load<Module>(path: string): Promise<Module>
  remove(): void
}

/** Takes the code of that commit out of the repository's history, so that one run measures both. */
export function extractTreeBefore(): TreeBefore {
  const folder = mkdtempSync(join(tmpdir(), 'penny-before-'))
  const archive = join(folder, 'tree.tar')
  execFileSync('git', ['archive', '-o', archive, commitBefore, 'src', 'bench', 'migrations', 'package.json'], {
    cwd: root,
  })
  execFileSync('tar', ['-xf', archive, '-C', folder])
  symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'))
  return {
    load: (path) => import(pathToFileURL(join(folder, path)).href),
    remove: () => rmSync(folder, { recursive: true }),
  }
}
