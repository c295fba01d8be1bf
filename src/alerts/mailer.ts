import type { Transporter } from 'nodemailer'
import { readClock } from '../db/clock.ts'
import type { Database } from '../db/database.ts'

export type MailerOptions = {
  readonly database: Database
  readonly smtpUrl: string
  readonly from: string
  readonly onError: (error: unknown) => void
}

const connectMsMax = 5_000
const answerMsMax = 10_000
/** Sent in one pass, so that a full queue does not become a burst. */
const mailsPerPassMax = 20
const retryMinutes = [1, 5, 15, 60, 240, 480]

type MailRow = {
  readonly partition: number
  readonly id: string
  readonly address: string
  readonly subject: string
  readonly body: string
  readonly attempts: number
}

/**
 * Sends queued mail, in plain text. A mail is deleted once the server has taken it, so a process that dies in between sends it
 * again, with the same Message-ID. Run by one process at a time.
 */
export class Mailer {
  readonly #options: MailerOptions
  #transport: Promise<Transporter> | undefined

  constructor(options: MailerOptions) {
    this.#options = options
  }

  /** Sends what is due. A server that cannot be reached ends the pass: the other mails would wait for the same timeout. */
  async send(): Promise<void> {
    const { database, from, onError } = this.#options
    const rows = await database.query<MailRow>(
      `select partition, id, address, subject, body, attempts from alert_mails where due_at <= now() order by due_at limit ${mailsPerPassMax}`,
    )
    for (const row of rows) {
      try {
        this.#transport ??= openTransport(this.#options.smtpUrl)
        await (await this.#transport).sendMail({
          from,
          to: { name: '', address: row.address },
          subject: row.subject,
          text: row.body,
          messageId: `<${row.id}@${from.slice(from.lastIndexOf('@') + 1).replace(/>.*$/, '')}>`,
          headers: { 'Auto-Submitted': 'auto-generated' },
        })
        await this.#delete(row)
      } catch (error) {
        onError(error)
        await this.#putOff(row, isRefused(error))
        if (!isRefused(error)) return
      }
    }
  }

  close(): void {
    void this.#transport?.then(
      (transport) => transport.close(),
      () => {},
    )
  }

  async #delete({ partition, id }: MailRow): Promise<void> {
    await this.#options.database.query('delete from alert_mails where partition = $1 and id = $2', [partition, id])
  }

  async #putOff(row: MailRow, isPermanent: boolean): Promise<void> {
    const minutes = retryMinutes[row.attempts]
    if (isPermanent || minutes === undefined) return this.#delete(row)
    const { database } = this.#options
    const due = new Date((await readClock(database)).getTime() + minutes * 60_000)
    await database.query(
      'update alert_mails set attempts = attempts + 1, due_at = $3 where partition = $1 and id = $2',
      [row.partition, row.id, due],
    )
  }
}

/** Loads the library with the first mail: most services send none, and it would be a twentieth of all files that a start reads. */
async function openTransport(url: string): Promise<Transporter> {
  const { createTransport } = await import('nodemailer')
  return createTransport({
    url,
    connectionTimeout: connectMsMax,
    greetingTimeout: connectMsMax,
    dnsTimeout: connectMsMax,
    socketTimeout: answerMsMax,
    disableFileAccess: true,
    disableUrlAccess: true,
  })
}

/** The server refuses this mail permanently: a 5xx response about its recipient or content. A refused sender concerns every mail. */
function isRefused(error: unknown): boolean {
  const { responseCode, code, command } = error as { responseCode?: number; code?: string; command?: string }
  const isOfMail = code === 'EMESSAGE' || (code === 'EENVELOPE' && command === 'RCPT TO')
  return isOfMail && responseCode !== undefined && responseCode >= 500
}
