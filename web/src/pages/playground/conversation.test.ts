import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  addLane,
  addRequest,
  type Conversation,
  changeMessage,
  closeLane,
  cutAfterQuestion,
  emptyAnswer,
  emptyConversation,
  interruptRunning,
  isRunning,
} from './conversation.ts'

const user = (id: string) => ({ id, role: 'user' as const, content: id })
const answer = (id: string, state: 'done' | 'running') => ({
  ...emptyAnswer(id, 'm'),
  content: id,
  state,
  requestId: `req_${id}`,
})
const answered: Conversation = {
  ...emptyConversation('m'),
  lanes: [
    {
      model: 'm',
      messages: [user('1'), answer('2', 'done'), user('3'), answer('4', 'done')],
      requestIds: ['req_2', 'req_4'],
    },
  ],
}
let made = 0
const newId = () => `new${(made += 1)}`

test('a second lane has the same messages and owes nothing for the answers that it copied', () => {
  const { lanes } = addLane(answered, 'other', newId)
  assert.deepEqual(
    lanes[1]!.messages.map(({ content }) => content),
    ['1', '2', '3', '4'],
  )
  assert.deepEqual(lanes[1]!.requestIds, [])
  assert.ok(lanes[1]!.messages.every((message) => message.role === 'user' || message.requestId === undefined))
  assert.equal(addLane(addLane(answered, 'a', newId), 'b', newId).lanes.length, 2)
})

test('a message of the user is edited and removed in both lanes, an answer in its own', () => {
  const both = addLane(answered, 'other', newId)
  const edited = changeMessage(both, '1', (message) => ({ ...message, content: 'new' }))
  assert.deepEqual(
    edited.lanes.map(({ messages }) => messages[0]!.content),
    ['new', 'new'],
  )
  const removed = changeMessage(both, '2', () => undefined)
  assert.deepEqual(
    removed.lanes.map(({ messages }) => messages.length),
    [3, 4],
  )
})

test('what a closed lane cost stays in the total', () => {
  assert.deepEqual(closeLane(addLane(answered, 'other', newId), 0).pastRequestIds, ['req_2', 'req_4'])
})

test('answering again keeps what was asked and drops what follows', () => {
  const [lane] = answered.lanes
  const left = (id: string) => cutAfterQuestion(lane!, id).messages.map((message) => message.id)
  assert.deepEqual([left('2'), left('3'), left('nothing')], [['1'], ['1', '2', '3'], ['1', '2', '3', '4']])
})

test('an answer that was streaming when the page was closed is marked, and keeps its text', () => {
  const streaming = { ...answered, lanes: [{ ...answered.lanes[0]!, messages: [user('1'), answer('2', 'running')] }] }
  assert.ok(isRunning(streaming))
  const restored = interruptRunning(streaming)
  assert.ok(!isRunning(restored))
  const last = restored.lanes[0]!.messages[1]!
  assert.ok(last.role === 'assistant' && last.state === 'interrupted' && last.content === '2')
})

test('the request of an answer belongs to its lane, also after the lane before it was closed', () => {
  const compared = {
    ...answered,
    lanes: [...answered.lanes, { model: 'other', messages: [answer('5', 'running')], requestIds: [] }],
  }
  const { lanes } = addRequest(closeLane(compared, 0), '5', 'req_late')
  assert.deepEqual(lanes[0]!.requestIds, ['req_late'])
})
