import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { call } from '../../api/call.ts'
import { balanceQuery } from '../../api/queries.ts'
import type { Account, Session } from '../../api/shapes.ts'
import { atomic } from '../../money/format.ts'
import { useChange } from '../../shell/use-change.ts'
import { Button } from '../../ui/button.tsx'
import { CopyableId } from '../../ui/copy.tsx'
import { TextField } from '../../ui/field.tsx'
import { Form } from '../../ui/form.tsx'
import { ErrorPanel } from '../../ui/loaded.tsx'
import { Panel } from '../../ui/panel.tsx'
import { Time } from '../../ui/time.tsx'
import { useWallets, type Wallet } from '../../wallet/wallet.ts'
import { WalletButton } from '../../wallet/wallet-button.tsx'
import { confirmBy } from '../sign-in/confirm.ts'
import { passkeysWork } from '../sign-in/passkey.ts'

/** What confirms the address: a passkey, a wallet, or nothing: then it waits. */
type Means = 'passkey' | 'nothing' | Wallet

/** Where withdrawals go. */
export function OwnerPanel({ session, account }: { session: Session; account: Account }) {
  const [address, setAddress] = useState('')
  const [tried, setTried] = useState(false)
  const needsProof = useNeedsProof(session, account)
  const change = useChange(async (means: Means) => {
    const proof = means === 'nothing' ? undefined : await confirmBy(means, account, { owner: address })
    return call('PUT /api/owner', { body: { address, ...(proof && { proof }) } })
  }, 'Owner address saved.')
  if (account.x402_wallet !== null) {
    return (
      <Panel title="Owner address" testId="owner-settings">
        <p>
          This account pays over x402. Its credit is refunded to{' '}
          <CopyableId id={account.x402_wallet} label="wallet address" short /> and to no other address.
        </p>
      </Panel>
    )
  }
  const valid = /^0x[0-9a-fA-F]{40}$/.test(address)
  const save = (means: Means) => {
    setTried(true)
    if (valid) change.mutate(means)
  }
  return (
    <Panel title="Owner address" testId="owner-settings">
      <p className="mb-3">
        {account.owner_address === null ? (
          'Not set. Withdrawals can only go to this address.'
        ) : (
          <>
            Withdrawals go to <CopyableId id={account.owner_address} label="owner address" short />
            {account.owner_usable_from !== null && Date.parse(account.owner_usable_from) > Date.now() && (
              <span className="text-held">
                {' '}
                from <Time at={account.owner_usable_from} /> on
              </span>
            )}
          </>
        )}
      </p>
      <Form
        // Enter confirms as the first button does.
        onSubmit={() => save(needsProof && canUsePasskey(session, account) ? 'passkey' : 'nothing')}
        className="flex flex-col gap-3"
      >
        <TextField
          label={account.owner_address === null ? 'Address' : 'Another address'}
          mono
          value={address}
          error={tried && !valid ? 'Enter an address: 0x followed by 40 hexadecimal digits.' : undefined}
          hint={hintFor(account, needsProof)}
          trimmed
          onChange={setAddress}
        />
        {needsProof ? (
          <ProofButtons session={session} account={account} busy={change.isPending} onChoose={save} />
        ) : (
          <div>
            <Button type="submit" busy={change.isPending}>
              Save
            </Button>
          </div>
        )}
      </Form>
      {change.error !== null && <ErrorPanel error={change.error} />}
    </Panel>
  )
}

type ProofButtonsProps = { session: Session; account: Account; busy: boolean; onChoose: (means: Means) => void }

function ProofButtons({ session, account, busy, onChoose }: ProofButtonsProps) {
  const wallets = useWallets()
  return (
    <div className="flex flex-wrap items-center gap-2">
      {canUsePasskey(session, account) && (
        <Button type="submit" variant="primary" busy={busy}>
          Confirm with passkey
        </Button>
      )}
      {account.wallets.length > 0 &&
        wallets.map((wallet) => (
          <WalletButton
            key={wallet.id}
            wallet={wallet}
            label={`Confirm with ${wallet.name}`}
            onClick={() => onChoose(wallet)}
            busy={busy}
          />
        ))}
      <Button type="button" variant="quiet" onClick={() => onChoose('nothing')} busy={busy}>
        Save without confirming
      </Button>
    </div>
  )
}

/** The first address of an account that has money waits, unless a passkey or wallet of the account signs it. */
function useNeedsProof({ chain }: Session, { owner_address }: Account): boolean {
  const { data } = useQuery(balanceQuery)
  if (chain === null || chain.owner_cooldown_seconds === 0 || owner_address !== null || data === undefined) return false
  return atomic(data.deposited_atomic) > 0n || atomic(data.pending_deposits_atomic) > 0n
}

function canUsePasskey(session: Session, account: Account): boolean {
  return account.passkeys.length > 0 && passkeysWork(session)
}

function hintFor({ owner_address }: Account, needsProof: boolean): string | undefined {
  if (needsProof)
    return 'Confirm it with a passkey or wallet of this account, and it takes effect immediately. Without confirmation it takes effect after a waiting period, which protects you if someone else enters it.'
  if (owner_address === null) return undefined
  return 'A new address takes effect after a waiting period, which protects you if someone else changes it.'
}
