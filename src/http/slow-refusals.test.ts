import assert from 'node:assert/strict'
import { EventEmitter } from 'node:events'
import type { ServerResponse } from 'node:http'
import { test } from 'node:test'
import { SlowRefusals } from './slow-refusals.ts'

function begin(random = () => 0) {
  const delays: number[] = []
  const wakes: (() => void)[] = []
  const sleep = (ms: number, signal: AbortSignal) =>
    new Promise<void>((wake, leave) => {
      delays.push(ms)
      wakes.push(wake)
      signal.addEventListener('abort', leave)
    })
  return { refusals: new SlowRefusals({ sleep, random }), delays, wakes }
}

const connection = () =>
  Object.assign(new EventEmitter(), {
    destroyed: false,
    closed: false,
    writableFinished: false,
  }) as unknown as ServerResponse

test('up to 200 connections, more of them do not get more refusals: each waits longer; further ones wait a second, so that dead ones do not pile up', async () => {
  const { refusals, delays, wakes } = begin()
  const all = Array.from({ length: 1_001 }, () => refusals.wait(['account', 'network'], connection()))
  assert.deepEqual(
    [delays[0], delays[50], delays[100], delays[199], delays[200], delays[1_000]],
    [1_000, 2_000, 3_000, 4_980, 1_000, 1_000],
  )
  for (const wake of wakes) wake()
  await Promise.all(all)
  void refusals.wait(['account', 'network'], connection())
  assert.equal(delays.at(-1), 1_000, 'nobody waits any more')
})

test('callers are counted apart, and by the name with the most that wait', () => {
  const { refusals, delays } = begin()
  for (let time = 0; time < 50; time += 1) void refusals.wait([`account ${time}`, 'network'], connection())
  void refusals.wait(['another', 'another network'], connection())
  void refusals.wait(['another', 'network'], connection())
  assert.deepEqual(delays.slice(-2), [1_000, 2_000])
})

test('refusals of one moment are sent at different moments', () => {
  let next = 0
  const { refusals, delays } = begin(() => (next += 0.1))
  for (let time = 0; time < 5; time += 1) void refusals.wait([`${time}`], connection())
  assert.deepEqual(delays.map(Math.round), [1_050, 1_100, 1_150, 1_200, 1_250])
})

test('a client that leaves ends its wait', async () => {
  const { refusals } = begin()
  const outgoing = connection()
  const waiting = refusals.wait(['account'], outgoing)
  outgoing.emit('close')
  await waiting
})
