import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import type { ChatEvent } from '../../src/inference/chat-events.ts'
import type { ChatRequest } from '../../src/inference/chat-request.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))

/** The last commit with one upstream and no providers. */
export const commitBefore = 'ece3ee5'

/** What the service called then, from the customer's request to the events of the answer. */
type Before = {
  toResponsesRequest(chat: ChatRequest, options: { upstreamModel: string; promptCacheKey: string }): object
  createUpstream(options: object): {
    respond(request: object, signal: AbortSignal): Promise<AsyncIterable<readonly ChatEvent[]>>
    close(): Promise<void>
  }
}

/** Loads the code of that commit from the repository's history. */
export async function loadBefore(): Promise<Before> {
  const folder = mkdtempSync(join(tmpdir(), 'penny-before-'))
  try {
    const archive = join(folder, 'src.tar')
    execFileSync('git', ['archive', '-o', archive, commitBefore, 'src', 'package.json'], { cwd: root })
    execFileSync('tar', ['-xf', archive, '-C', folder])
    symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'))
    const load = (file: string) => import(pathToFileURL(join(folder, 'src/inference', file)).href)
    return { ...(await load('responses-request.ts')), ...(await load('upstream.ts')) }
  } finally {
    rmSync(folder, { recursive: true })
  }
}
