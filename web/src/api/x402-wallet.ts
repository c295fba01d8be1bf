import { useQuery } from '@tanstack/react-query'
import { sessionQuery } from './queries.ts'

/** The wallet of a wallet account, which pays over x402: it has no deposits and no withdrawals. Undefined for every other account. */
export function useX402Wallet(): string | undefined {
  return useQuery(sessionQuery).data?.account?.x402_wallet ?? undefined
}
