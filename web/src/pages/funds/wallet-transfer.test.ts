import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { encodeFunctionData, erc20Abi } from 'viem'
import { transferData } from './wallet-transfer.ts'

test('what the wallet is asked to sign is a transfer of exactly this amount to exactly this address', () => {
  const hexDigits = fc.uint8Array({ minLength: 20, maxLength: 20 })
  fc.assert(
    fc.property(hexDigits, fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), (bytes, amount) => {
      const to = `0x${Buffer.from(bytes).toString('hex')}` as const
      const expected = encodeFunctionData({ abi: erc20Abi, functionName: 'transfer', args: [to, amount] })
      assert.equal(transferData(to, amount), expected)
      assert.equal(transferData(to.toUpperCase().replace('X', 'x'), amount), expected)
    }),
  )
})
