import { z } from 'zod'
import { scopes } from '../../identity/management-keys.ts'
import { contract } from '../contract.ts'
import { instant, list, name, uuid } from '../shapes.ts'

const scopeList = z
  .array(z.enum(scopes))
  .min(1)
  .max(scopes.length)
  .meta({ description: 'What the key may do; a `write` scope includes its `read` scope', examples: [['keys:write']] })

const managementKey = z
  .object({
    object: z.literal('management_key'),
    id: uuid,
    name: z.string(),
    hint: z.string().meta({ examples: ['penny_mgmt_…a1b2'] }),
    status: z.enum(['active', 'revoked', 'expired']),
    scopes: scopeList,
    made_by: uuid.meta({ description: 'Id of the member who created it' }),
    created_at: instant,
    last_used_at: instant.nullable(),
    expires_at: instant.nullable(),
    revoked_at: instant.nullable(),
  })
  .meta({ id: 'ManagementKey' })

const withSecret = managementKey
  .extend({ secret: z.string().meta({ description: 'Returned only once' }) })
  .meta({ id: 'ManagementKeyWithSecret' })

const parameters = z.object({ id: uuid })

/** Keys for programs that manage an account. Only people manage these keys themselves: a key cannot make itself more powerful. */
export const managementKeyContracts = {
  listManagementKeys: contract({
    operation: 'listManagementKeys',
    method: 'GET',
    path: '/api/management-keys',
    summary: 'List management keys, newest first',
    access: 'session',
    role: 'admin',
    answer: list(managementKey),
  }),
  createManagementKey: contract({
    operation: 'createManagementKey',
    method: 'POST',
    path: '/api/management-keys',
    summary: 'Create a management key; needs a recent sign-in. Its secret is returned only once',
    access: 'session',
    role: 'admin',
    body: z.strictObject({ name, scopes: scopeList, expires_at: instant.nullable().optional() }),
    status: 201,
    answer: withSecret,
  }),
  getManagementKey: contract({
    operation: 'getManagementKey',
    method: 'GET',
    path: '/api/management-keys/{id}',
    summary: 'Get one management key',
    access: 'session',
    role: 'admin',
    parameters,
    answer: managementKey,
  }),
  updateManagementKey: contract({
    operation: 'updateManagementKey',
    method: 'PATCH',
    path: '/api/management-keys/{id}',
    summary:
      'Change a management key; needs a recent sign-in. Omitted fields stay; null removes the expiry. Effective from its next request',
    access: 'session',
    role: 'admin',
    parameters,
    body: z.strictObject({
      name: name.optional(),
      scopes: scopeList.optional(),
      expires_at: instant.nullable().optional(),
    }),
    answer: managementKey,
  }),
  rotateManagementKey: contract({
    operation: 'rotateManagementKey',
    method: 'POST',
    path: '/api/management-keys/{id}/rotate',
    summary: 'Give a management key a new secret; needs a recent sign-in. The old one stops working immediately',
    access: 'session',
    role: 'admin',
    parameters,
    answer: withSecret,
  }),
  revokeManagementKey: contract({
    operation: 'revokeManagementKey',
    method: 'DELETE',
    path: '/api/management-keys/{id}',
    summary: 'Revoke a management key permanently',
    access: 'session',
    role: 'admin',
    parameters,
    answer: managementKey,
  }),
} as const
