import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

const execute = promisify(execFile)
const notifyMsMax = 5_000

/**
 * Notifies systemd that the service is ready or stopping, if systemd asked for it (`Type=notify`). Its socket takes datagrams,
 * which Node cannot send to a unix socket; `systemd-notify` is part of every systemd.
 */
export async function notifyInit(socket: string | undefined, state: 'ready' | 'stopping'): Promise<void> {
  if (socket === undefined) return
  const flag = state === 'ready' ? '--ready' : 'STOPPING=1'
  await execute('systemd-notify', [flag], {
    env: { NOTIFY_SOCKET: socket, PATH: '/usr/bin:/bin' },
    timeout: notifyMsMax,
  })
}
