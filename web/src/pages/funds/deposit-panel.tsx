import { useState } from 'react'
import { encode } from 'uqr'
import type { Account, Session } from '../../api/shapes.ts'
import { useFaucet } from '../../shell/sandbox-bar.tsx'
import { Button } from '../../ui/button.tsx'
import { CopyButton } from '../../ui/copy.tsx'
import { Notice, Panel } from '../../ui/panel.tsx'
import { Tabs } from '../../ui/tabs.tsx'
import { groupAddress } from './address.ts'
import { WalletDeposit } from './wallet-deposit.tsx'

type Form = 'plain' | 'request'

/** Where to send USDC. The address is the account's own; nothing has to be connected. */
export function DepositPanel({ session, account }: { session: Session; account: Account }) {
  const faucet = useFaucet()
  const [form, setForm] = useState<Form>('plain')
  const address = account.deposit_address
  const chain = session.chain?.name ?? 'the chain'
  return (
    <Panel
      title="Deposit"
      actions={
        session.features.faucet && (
          <Button small variant="primary" change={faucet}>
            Get 25 test USDC
          </Button>
        )
      }
    >
      {address === null ? (
        <p className="text-muted">
          {session.chain === null
            ? 'This installation has no chain configured, so there is no deposit address.'
            : 'Your deposit address is being created. It will appear here within a few minutes.'}
        </p>
      ) : (
        <div className="flex flex-col gap-4">
          <p>
            Send USDC on {chain} from any wallet or exchange to your deposit address
            {session.chain?.takes_coin === true && ', as the chain’s coin or as a token: both arrive'}. It is credited
            once it is final
            {session.chain === null
              ? ''
              : `. Deposits below ${session.chain.deposit_min} USDC are credited once they add up to that`}
            .
          </p>
          <div className="flex flex-wrap gap-6">
            <Tabs
              label="QR code contents"
              value={form}
              tabs={[
                ['plain', 'Address'],
                ['request', 'Payment request'],
              ]}
              onChange={setForm}
            >
              <div className="pt-3">
                <QrCode
                  text={form === 'plain' ? address : paymentRequest(session, address)}
                  label={form === 'plain' ? 'QR code of the deposit address' : 'QR code of a payment request (EIP-681)'}
                />
              </div>
            </Tabs>
            <div className="flex min-w-0 flex-[1_1_16rem] flex-col gap-3">
              <p
                className="num flex max-w-80 flex-wrap gap-x-2 text-lg"
                data-testid="deposit-address"
                data-address={address}
              >
                {groupAddress(address).map((group, at) => (
                  // biome-ignore lint/suspicious/noArrayIndexKey: the groups of one address never move.
                  <span key={at}>{group}</span>
                ))}
              </p>
              <div>
                <CopyButton text={address}>Copy address</CopyButton>
              </div>
              {form === 'request' && (
                <p className="text-sm text-muted">
                  A payment request also contains the token and the chain. Not every wallet supports it; the plain
                  address always works.
                </p>
              )}
            </div>
          </div>
          <Notice tone="held">Send only USDC on {chain}. Anything else may be lost.</Notice>
          {session.chain !== null && session.chain.usdc_address !== null && (
            <WalletDeposit chain={session.chain} to={address} hasFaucet={session.features.faucet} />
          )}
        </div>
      )}
      <p role="status" className="mt-2 text-sm text-muted">
        {faucet.error?.message ?? faucet.data}
      </p>
    </Panel>
  )
}

function paymentRequest({ chain }: Session, address: string): string {
  if (chain === null || chain.usdc_address === null) return address
  return `ethereum:${chain.usdc_address}@${chain.id}/transfer?address=${address}`
}

/** A QR code as one path: sharp at any size, and black on white in both themes, as scanners want it. */
function QrCode({ text, label }: { text: string; label: string }) {
  const { data, size } = encode(text, { ecc: 'M', border: 3 })
  const path = data.flatMap((row, y) => row.map((dark, x) => (dark ? `M${x},${y}h1v1h-1z` : ''))).join('')
  return (
    <svg
      data-testid="qr"
      data-text={text}
      role="img"
      aria-label={label}
      viewBox={`0 0 ${size} ${size}`}
      className="w-44 rounded-md border border-rule"
      shapeRendering="crispEdges"
    >
      <rect width={size} height={size} fill="#fff" />
      <path d={path} fill="#000" />
    </svg>
  )
}
