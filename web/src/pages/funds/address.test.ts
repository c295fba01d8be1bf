import assert from 'node:assert/strict'
import { test } from 'node:test'
import { addressProblem, groupAddress } from './address.ts'

const owner = '0x70997970C51812dc3A010C7d01b50e0d17dc79C8'
const known = {
  usdcAddress: '0x3600000000000000000000000000000000000000',
  depositAddress: '0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC',
  ownerAddress: null,
}

test('money is not sent where it would be lost or come straight back', () => {
  assert.match(addressProblem(`0x${'0'.repeat(40)}`, known)!, /zero address/)
  assert.match(addressProblem(known.usdcAddress, known)!, /token/)
  assert.match(addressProblem(known.depositAddress.toLowerCase(), known)!, /own deposit address/)
  assert.match(addressProblem('0x1234', known)!, /40 hexadecimal digits/)
  assert.equal(addressProblem(owner, known), undefined)
})

test('once there is an owner address, no other is accepted', () => {
  const registered = { ...known, ownerAddress: owner }
  assert.equal(addressProblem(owner.toLowerCase(), registered), undefined)
  assert.match(
    addressProblem('0x90F79bf6EB2c4f870365E785982E1f101E93b906', registered)!,
    /only go to your owner address/,
  )
})

test('an address is shown in groups that join to the address', () => {
  assert.equal(groupAddress(owner).join(''), owner)
  assert.deepEqual(groupAddress(owner).slice(0, 3), ['0x', '7099', '7970'])
})
