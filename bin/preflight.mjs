// Plain JavaScript for any Node >= 18. Finds what would stop a start before minutes are spent on downloading, installing and building.
import { once } from 'node:events'
import { accessSync, constants, statSync } from 'node:fs'
import { createServer } from 'node:net'
import { dirname, resolve } from 'node:path'

/**
 * Why a start with this environment cannot succeed, in one line; undefined when it may succeed. Checks only the port and the data folder,
 * with the service's own messages (`src/http/server.ts`, `src/db/data-dir.ts`). The service checks all other settings.
 */
export async function findStartProblem(environment) {
  return dataDirProblem(resolve(environment.DATA_DIR || '.penny')) ?? (await portProblem(environment))
}

async function portProblem({ PORT, HOST }) {
  const port = Number(PORT || 8402)
  const host = HOST || '127.0.0.1'
  if (!Number.isInteger(port) || port < 0 || port > 65_535)
    return `PORT must be a whole number from 0 to 65535, got "${PORT}".`
  const server = createServer()
  server.listen(port, host)
  try {
    await once(server, 'listening')
  } catch (error) {
    if (error.code === 'EADDRINUSE')
      return `Port ${port} of ${host} is in use. Stop what uses it, or choose another with PORT.`
    if (error.code === 'EACCES')
      return `This user may not listen on port ${port} of ${host}. Choose a port above 1023 with PORT.`
    return undefined
  } finally {
    server.close()
  }
  return undefined
}

function dataDirProblem(folder) {
  for (let path = folder; ; path = dirname(path)) {
    try {
      if (!statSync(path).isDirectory())
        return `DATA_DIR cannot be used: ${path} is not a folder. Set DATA_DIR to a folder that this user can write to.`
      accessSync(path, constants.W_OK)
      return undefined
    } catch (error) {
      if (error.code === 'ENOENT' && path !== dirname(path)) continue
      if (error.code === 'ENOTDIR') continue
      return `DATA_DIR cannot be used: ${error.message}. Set DATA_DIR to a folder that this user can write to.`
    }
  }
}
