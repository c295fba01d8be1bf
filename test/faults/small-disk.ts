import { execFile } from 'node:child_process'
import { closeSync, openSync, rmSync, writeSync } from 'node:fs'
import { mkdtemp, rmdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

const execute = promisify(execFile)
const chunkBytes = 1024 * 1024
const blockBytes = 4096

/** A file system of a few megabytes that can be filled. Creating it requires the right to mount, which root has on Linux. */
export class SmallDisk {
  readonly folder: string
  readonly #filler: string

  /** Why none can be created here. */
  static async mount(megabytes: number): Promise<SmallDisk | { readonly refusal: string }> {
    const folder = await mkdtemp(join(tmpdir(), 'penny-disk-'))
    try {
      // PostgreSQL runs as another user if we are root, so others must be able to enter.
      await execute('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m,mode=0711`, 'penny-small-disk', folder])
      return new SmallDisk(folder)
    } catch (error) {
      await rmdir(folder)
      return { refusal: String(error) }
    }
  }

  private constructor(folder: string) {
    this.folder = folder
    this.#filler = join(folder, 'filler')
  }

  /** Fills the disk to the last block, until it is freed. */
  fill(): void {
    const file = openSync(this.#filler, 'a')
    try {
      for (const bytes of [chunkBytes, blockBytes]) writeUntilFull(file, Buffer.alloc(bytes))
    } finally {
      closeSync(file)
    }
  }

  free(): void {
    rmSync(this.#filler, { force: true })
  }

  async unmount(): Promise<void> {
    await execute('umount', ['--lazy', this.folder])
    await rmdir(this.folder)
  }
}

/** Moves a folder to another file system, with a link at its old path. It must not be in use. */
export async function moveFolder(from: string, to: string): Promise<void> {
  await execute('mv', [from, to])
  await execute('ln', ['-s', to, from])
}

function writeUntilFull(file: number, bytes: Buffer): void {
  try {
    for (;;) writeSync(file, bytes)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error
  }
}
