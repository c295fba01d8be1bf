import { forgetAlerts } from '../alerts/alerts.ts'
import type { Config } from '../config/config.ts'
import { trimAccountLogs } from '../db/account-log.ts'
import type { Database } from '../db/database.ts'
import { deleteExpiredSignIns } from '../identity/sessions.ts'
import { forgetEvents } from '../ledger/events.ts'
import { forgetReplays } from '../ledger/replays.ts'
import { createRequestMonths, forgetRefusals } from '../ledger/requests.ts'
import { forgetDeliveries } from '../webhooks/deliveries.ts'
import { forgetWalletSignIns } from '../x402/sign-in.ts'

/** Limit per account for the answers that are kept for retries. */
const keptAnswerBytesMax = 256 * 1024 * 1024

/** Each step runs even if another one fails: without its partition, a new month would fill the default partition. */
export async function cleanUp(
  database: Database,
  { replayHours, refusedDays }: Pick<Config, 'replayHours' | 'refusedDays'>,
  onError: (error: unknown) => void,
): Promise<void> {
  await createRequestMonths(database).catch(onError)
  await forgetReplays(database, replayHours, keptAnswerBytesMax).catch(onError)
  await deleteExpiredSignIns(database).catch(onError)
  await forgetWalletSignIns(database).catch(onError)
  await forgetRefusals(database, refusedDays).catch(onError)
  await forgetEvents(database).catch(onError)
  await forgetDeliveries(database).catch(onError)
  await trimAccountLogs(database).catch(onError)
  await forgetAlerts(database).catch(onError)
}
