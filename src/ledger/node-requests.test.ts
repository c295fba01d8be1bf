import assert from 'node:assert/strict'
import { test } from 'node:test'
import { NodeRequests, type WholeEnd } from './node-requests.ts'

const rememberedMax = 20_000

function endOf(id: string): WholeEnd {
  return { requestId: id } as unknown as WholeEnd
}

test(`a node remembers its last ${rememberedMax.toLocaleString('en')} ends, one that was written again among the newest`, () => {
  const requests = new NodeRequests()
  const [first, forgotten] = [endOf('first'), endOf('forgotten')]
  requests.ended(first)
  requests.ended(forgotten)
  requests.forget(forgotten.requestId)
  for (let index = 2; index < rememberedMax; index += 1) requests.ended(endOf(`${index}`))
  assert.equal(requests.endOf(first.requestId), first)
  const again = endOf('first')
  requests.ended(again)
  requests.ended(endOf('next'))
  assert.equal(requests.endOf(first.requestId), again)
  requests.ended(endOf('after next'))
  assert.deepEqual([requests.endOf(forgotten.requestId), requests.endOf(endOf('2').requestId)], [undefined, undefined])
  assert.equal(requests.endOf(endOf('3').requestId)?.requestId, '3')
})
