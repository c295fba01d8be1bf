import { fstatSync, mkdirSync, renameSync, rmdirSync, statSync } from 'node:fs'
import pino from 'pino'

export type LogFileLimits = {
  /** A file that has grown to this is rotated: it gets a number, and a new one is begun. */
  readonly bytesMax: number
  /** So many rotated ones are kept: `.1` is the youngest. */
  readonly filesMax: number
}

export type LogFile = { write(line: string): void; flush(): void }

/** What the types leave out: the file that is written to now. */
type Sink = ReturnType<typeof pino.destination> & { readonly fd: number }

const looksPerFile = 64
const rotatingMsMax = 60_000

/**
 * A file of lines that several processes append to, and that does not grow for good. Whoever finds it full rotates it; the others
 * see at their next look that theirs is not the one of that name any more, and open it anew. No line is lost on the way: what is
 * written meanwhile is in the file that was rotated.
 */
export function openLogFile(path: string, { bytesMax, filesMax }: LogFileLimits): LogFile {
  const sink = pino.destination({ dest: path, sync: false, mode: 0o600 }) as Sink
  let isOpening = true
  const opened = () => {
    isOpening = false
  }
  sink.on('ready', opened)
  // A full disk or a folder that has gone: what cannot be written is lost, and nothing else. Unheard, it would end the process.
  sink.on('error', opened)
  const lookBytes = bytesMax / looksPerFile
  let unseenBytes = 0
  return {
    write(line) {
      sink.write(line)
      unseenBytes += line.length
      if (unseenBytes < lookBytes) return
      unseenBytes = 0
      try {
        if (isFull(path, bytesMax)) rotate(path, bytesMax, filesMax)
        if (isOpening || isSame(path, sink.fd)) return
        isOpening = true
        sink.reopen()
      } catch {
        // A file that cannot be looked at goes on growing: the log stands in nobody's way.
      }
    },
    flush: () => sink.flush(),
  }
}

function isFull(path: string, bytesMax: number): boolean {
  return (statSync(path, { throwIfNoEntry: false })?.size ?? 0) >= bytesMax
}

function isSame(path: string, fd: number): boolean {
  return statSync(path, { throwIfNoEntry: false })?.ino === fstatSync(fd).ino
}

/** By one process at a time: two at once would rotate the new file too, and drop an old one for it. */
function rotate(path: string, bytesMax: number, filesMax: number): void {
  const rotating = `${path}.rotating`
  try {
    mkdirSync(rotating)
  } catch {
    // Somebody else does. Whoever died over it is forgotten.
    if (Date.now() - (statSync(rotating, { throwIfNoEntry: false })?.mtimeMs ?? Number.NaN) > rotatingMsMax)
      remove(rotating)
    return
  }
  try {
    if (!isFull(path, bytesMax)) return
    for (let number = filesMax - 1; number >= 1; number -= 1) rename(`${path}.${number}`, `${path}.${number + 1}`)
    rename(path, `${path}.1`)
  } finally {
    remove(rotating)
  }
}

function rename(from: string, to: string): void {
  try {
    renameSync(from, to)
  } catch {
    // Not there, or the folder may not be written: then the file goes on growing, and no line is lost.
  }
}

function remove(folder: string): void {
  try {
    rmdirSync(folder)
  } catch {
    // Somebody was faster.
  }
}
