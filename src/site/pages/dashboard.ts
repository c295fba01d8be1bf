import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { extname, join, relative, sep } from 'node:path'

/** A file of the built dashboard, ready to be sent. */
export type Asset = {
  readonly body: Buffer
  readonly type: string
  readonly etag: string
  readonly encoding: 'br' | 'gzip' | undefined
  /** Its name contains a hash of its content, so it can be cached permanently. */
  readonly immutable: boolean
}

type Variants = { readonly plain: Asset; readonly br: Asset | undefined; readonly gzip: Asset | undefined }

const types: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.json': 'application/json',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
  '.ico': 'image/x-icon',
  '.woff2': 'font/woff2',
  '.txt': 'text/plain; charset=utf-8',
  '.webmanifest': 'application/manifest+json',
  '.map': 'application/json',
}
const bytesMax = 64 * 1024 * 1024
const hashedName = /-[A-Za-z0-9_-]{8,}\.\w+$/

/**
 * The built dashboard, read once into memory: a few files that never change while the service runs. Requested files are looked up by name
 * and never opened by path, so no name leads out of the folder.
 */
export class Dashboard {
  readonly #assets: ReadonlyMap<string, Variants>

  private constructor(assets: ReadonlyMap<string, Variants>) {
    this.#assets = assets
  }

  /** Undefined when the dashboard was not built. */
  static load(folder: string): Dashboard | undefined {
    if (!existsSync(join(folder, 'index.html'))) return undefined
    const files = readFolder(folder)
    const assets = new Map<string, Variants>()
    for (const [path, body] of files) {
      if (path.endsWith('.br') || path.endsWith('.gz')) continue
      const make = (content: Buffer | undefined, encoding: Asset['encoding']) =>
        content === undefined ? undefined : asset(path, content, encoding)
      assets.set(path, {
        plain: asset(path, body, undefined),
        br: make(files.get(`${path}.br`), 'br'),
        gzip: make(files.get(`${path}.gz`), 'gzip'),
      })
    }
    return new Dashboard(assets)
  }

  /** The path of the first file with this prefix and suffix; file names have a hash in between. */
  pathOf(prefix: string, suffix: string): string | undefined {
    return [...this.#assets.keys()].find((path) => path.startsWith(prefix) && path.endsWith(suffix))
  }

  /** The file at this path. */
  find(path: string, acceptEncoding: string): Asset | undefined {
    const variants = this.#assets.get(path)
    if (variants === undefined) return undefined
    if (variants.br !== undefined && /\bbr\b/.test(acceptEncoding)) return variants.br
    if (variants.gzip !== undefined && /\bgzip\b/.test(acceptEncoding)) return variants.gzip
    return variants.plain
  }

  /** The only HTML file: its script reads the address and shows that page. */
  page(acceptEncoding: string): Asset {
    return this.find('/index.html', acceptEncoding)!
  }
}

function asset(path: string, body: Buffer, encoding: Asset['encoding']): Asset {
  return {
    body,
    type: types[extname(path)] ?? 'application/octet-stream',
    etag: `"${createHash('sha256').update(body).digest('base64url').slice(0, 22)}"`,
    encoding,
    immutable: hashedName.test(path),
  }
}

function readFolder(folder: string): Map<string, Buffer> {
  const files = new Map<string, Buffer>()
  let bytes = 0
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue
    const file = join(entry.parentPath, entry.name)
    const body = readFileSync(file)
    bytes += body.length
    if (bytes > bytesMax) throw new Error(`The built dashboard is larger than ${bytesMax} bytes: ${folder}`)
    files.set(`/${relative(folder, file).split(sep).join('/')}`, body)
  }
  return files
}
