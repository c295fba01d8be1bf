import { z } from 'zod'
import { deviceLoginStatuses } from '../../identity/device-logins.ts'
import { contract } from '../contract.ts'
import { instant, text } from '../shapes.ts'
import { keyContracts } from './keys.ts'

const deviceCode = text(100).min(1).meta({ description: 'The secret of the waiting program, from startDeviceLogin' })
const code = z.object({
  code: text(40).meta({ description: 'The code that the terminal shows; case and dashes do not matter' }),
})

const deviceLogin = z
  .object({
    object: z.literal('device_login'),
    user_code: z.string().meta({ examples: ['WDJB-MJHT'] }),
    machine: z.string().meta({ description: 'Machine name as reported by the program; unverified' }),
    network: z.string().meta({ description: 'Network of the program: an IPv4 address, or the /56 of an IPv6 address' }),
    status: z.enum(deviceLoginStatuses),
    created_at: instant,
    expires_at: instant,
  })
  .meta({ id: 'DeviceLogin' })

/** `penny login URL` without a key, like RFC 8628: a program asks, a signed-in person confirms, the program gets a key. */
export const deviceContracts = {
  startDeviceLogin: contract({
    operation: 'startDeviceLogin',
    method: 'POST',
    path: '/api/auth/device',
    summary:
      'Start a device login for a program without a browser. Returns a code that a signed-in user confirms, and a secret to poll with. Valid for ten minutes',
    access: 'public',
    isForPrograms: true,
    body: z.strictObject({
      // Shown to the person who confirms: it must not look like a message of ours.
      machine: text(100)
        .trim()
        .min(1)
        .refine(
          (given) => !/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/u.test(given),
          'must not contain control characters, line breaks or marks of text direction',
        ),
    }),
    answer: z.object({
      object: z.literal('device_code'),
      device_code: z.string().meta({ description: 'Secret: its holder receives the key' }),
      user_code: z.string().meta({ examples: ['WDJB-MJHT'] }),
      verification_uri: z.string(),
      verification_uri_complete: z.string(),
      expires_in: z.int().meta({ description: 'Seconds' }),
      interval: z.int().meta({ description: 'Seconds between two polls' }),
    }),
  }),
  pollDeviceLogin: contract({
    operation: 'pollDeviceLogin',
    method: 'POST',
    path: '/api/device/poll',
    summary: 'Poll a device login. After confirmation, the key is created and returned once',
    access: 'public',
    isForPrograms: true,
    body: z.strictObject({ device_code: deviceCode }),
    answer: z.object({
      object: z.literal('device_login_state'),
      status: z.enum(['pending', 'slow_down', 'confirmed', 'declined', 'expired']).meta({
        description: '`slow_down`: still pending, and polled too early. `expired`: expired, used or cancelled',
      }),
      interval: z.int().nullable().meta({ description: 'Seconds until the next poll; null if polling has ended' }),
      key: keyContracts.createKey.answer.nullable(),
    }),
  }),
  cancelDeviceLogin: contract({
    operation: 'cancelDeviceLogin',
    method: 'POST',
    path: '/api/device/cancel',
    summary: 'Cancel a device login; its code can no longer be confirmed',
    access: 'public',
    isForPrograms: true,
    body: z.strictObject({ device_code: deviceCode }),
    status: 204,
  }),
  getDeviceLogin: contract({
    operation: 'getDeviceLogin',
    method: 'GET',
    path: '/api/device/{code}',
    summary: 'Get the machine that requests a key with this code',
    access: 'session',
    role: 'developer',
    parameters: code,
    answer: deviceLogin,
  }),
  confirmDeviceLogin: contract({
    operation: 'confirmDeviceLogin',
    method: 'POST',
    path: '/api/device/{code}/confirm',
    summary: 'Confirm a device login. The machine receives a new API key with these terms when it polls next',
    access: 'session',
    role: 'developer',
    parameters: code,
    body: keyContracts.createKey.body,
    answer: deviceLogin,
  }),
  declineDeviceLogin: contract({
    operation: 'declineDeviceLogin',
    method: 'POST',
    path: '/api/device/{code}/decline',
    summary: 'Decline a device login',
    access: 'session',
    role: 'developer',
    parameters: code,
    answer: deviceLogin,
  }),
} as const
