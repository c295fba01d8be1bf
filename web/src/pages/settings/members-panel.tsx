import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { call } from '../../api/call.ts'
import { changedFields } from '../../api/changed-fields.ts'
import { invitationsQuery, membersQuery } from '../../api/queries.ts'
import { hasRole, type Role, roles } from '../../api/session.ts'
import type { Member, Session } from '../../api/shapes.ts'
import { amountError, isAmount } from '../../money/format.ts'
import { accountName } from '../../shell/account-menu.tsx'
import { ChangeDialog, ConfirmButton, DialogButton, leaveFor } from '../../shell/change-dialog.tsx'
import { Item, ResourcePanel } from '../../shell/resource-panel.tsx'
import { useChange } from '../../shell/use-change.ts'
import { Button } from '../../ui/button.tsx'
import { SelectField, TextField } from '../../ui/field.tsx'
import { type FormState, useForm } from '../../ui/form.tsx'
import { ErrorPanel, Loaded, Skeleton } from '../../ui/loaded.tsx'
import { Time } from '../../ui/time.tsx'

const roleWords: Readonly<Record<Role, string>> = {
  viewer: 'Viewer: reads everything but secrets',
  developer: 'Developer: own keys and the playground',
  admin: 'Admin: all keys, members, webhooks, settings',
  owner: 'Owner: also withdrawals and closing the account',
}
const windowWords = { lifetime: 'in total', day: 'a day', week: 'a week', month: 'a month' } as const
type Window = keyof typeof windowWords

/** Members of the account, and invitations. */
export function MembersPanel({ session }: { session: Session }) {
  const isAdmin = hasRole(session, 'admin')
  return (
    <ResourcePanel
      title="Members"
      testId="members"
      query={useQuery(membersQuery)}
      actions={(show) =>
        isAdmin && (
          <DialogButton
            small
            icon="plus"
            dialog={(close) => <InviteDialog session={session} onClose={close} onLink={show} />}
          >
            Invite
          </DialogButton>
        )
      }
      item={(member) => <MemberEntry key={member.id} member={member} session={session} />}
      secret={{
        title: 'Invitation link',
        lead: 'Send this link to the person. It works once, for seven days, and anyone who has it can join. It is not shown again.',
        whenLost: 'You would have to create another invitation.',
        testId: 'invitation-link',
      }}
    >
      {isAdmin && <Invitations />}
      <Leave session={session} />
    </ResourcePanel>
  )
}

const roleName = (role: Role) => roleWords[role].split(':')[0]

function MemberEntry({ member, session }: { member: Member; session: Session }) {
  const { name, role, limit, limit_window: window, last_active_at: lastActiveAt } = member
  return (
    <Item
      testId="member"
      name={
        <>
          {name}
          {member.id === session.person?.id && <span className="text-accent"> · you</span>}
        </>
      }
      notes={[
        `${roleName(role)}${limit === null ? '' : `, keys up to ${limit} USDC ${windowWords[window]}`}`,
        lastActiveAt === null ? (
          'Not active yet'
        ) : (
          <>
            Last active <Time at={lastActiveAt} show="age" />
          </>
        ),
      ]}
      actions={
        hasRole(session, 'admin') &&
        hasRole(session, role) && (
          <DialogButton
            small
            variant="quiet"
            dialog={(close) => <EditDialog member={member} session={session} onClose={close} />}
          >
            Edit<span className="sr-only"> {name}</span>
          </DialogButton>
        )
      }
    />
  )
}

type Terms = { readonly role: Role; readonly limit: string; readonly window: Window }

const checkTerms = ({ limit }: Terms) => ({ limit: limit === '' || isAmount(limit) ? undefined : amountError })

function TermsFields({ session, terms: { field } }: { session: Session; terms: FormState<Terms> }) {
  const allowed = roles.filter((role) => hasRole(session, role))
  return (
    <>
      <SelectField label="Role" options={allowed.map((role) => [role, roleWords[role]])} {...field('role')} />
      <TextField
        label="Spending limit of the member"
        amount
        placeholder="none"
        hint="All keys that the member creates share it. Each then needs a limit of its own with the same window."
        {...field('limit')}
      />
      <SelectField
        label="Limit window"
        options={Object.entries(windowWords) as [Window, string][]}
        {...field('window')}
      />
    </>
  )
}

const bodyOf = ({ role, limit, window }: Terms) => ({
  role,
  limit: limit === '' ? null : limit,
  limit_window: window,
})

type InviteProps = { session: Session; onClose: () => void; onLink: (link: string) => void }

function InviteDialog({ session, onClose, onLink }: InviteProps) {
  const terms = useForm<Terms>({ role: 'developer', limit: '', window: 'lifetime' }, checkTerms)
  return (
    <ChangeDialog
      title="Invite a member"
      action="Create link"
      make={() => call('POST /api/invitations', { body: bodyOf(terms.fields) })}
      said="Invitation created."
      submit={terms.submit}
      onMade={({ url }) => onLink(url)}
      onClose={onClose}
      ifMade="The invitation may have been created, but its link cannot be shown any more. If it is in the list of open invitations, revoke it before you create another."
    >
      <TermsFields session={session} terms={terms} />
    </ChangeDialog>
  )
}

function EditDialog({ member, session, onClose }: { member: Member; session: Session; onClose: () => void }) {
  const parameters = { id: member.id }
  const [opened] = useState<Terms>({ role: member.role, limit: member.limit ?? '', window: member.limit_window })
  const terms = useForm(opened, checkTerms)
  const [isRemoving, setIsRemoving] = useState(false)
  if (isRemoving)
    return (
      // A new `key` remounts the dialog, so it gets focus.
      <ChangeDialog
        key="remove"
        title={`Remove ${member.name}`}
        action="Remove member"
        variant="danger"
        make={() => call('DELETE /api/members/{id}', { parameters })}
        said="Member removed."
        onMade={onClose}
        onClose={() => setIsRemoving(false)}
      >
        This immediately ends the member’s sessions in this account and revokes the keys that the member created and the
        secrets of other keys that the member rotated. Revoked keys cannot be restored.
      </ChangeDialog>
    )
  const save = async () => {
    const body = changedFields(bodyOf(terms.fields), bodyOf(opened))
    if (Object.keys(body).length > 0) await call('PATCH /api/members/{id}', { parameters, body })
  }
  return (
    <ChangeDialog
      title={member.name}
      action="Save"
      make={save}
      said="Saved."
      submit={terms.submit}
      otherAction={
        member.id !== session.person?.id && (
          <Button variant="danger" onClick={() => setIsRemoving(true)}>
            Remove member
          </Button>
        )
      }
      onClose={onClose}
    >
      <TermsFields session={session} terms={terms} />
    </ChangeDialog>
  )
}

function Invitations() {
  const invitations = useQuery(invitationsQuery)
  const revoke = useChange(
    (id: string) => call('DELETE /api/invitations/{id}', { parameters: { id } }),
    'Invitation revoked.',
  )
  if (invitations.data?.data.length === 0) return null
  return (
    <div className="mt-4 border-t border-rule pt-3">
      <h3 className="mb-2 text-sm text-muted">Open invitations</h3>
      <Loaded query={invitations} skeleton={<Skeleton lines={1} />}>
        {({ data }) => (
          <ul className="flex flex-col gap-2">
            {data.map(({ id, role, expires_at, invited_by }) => (
              <Item
                key={id}
                name={roleName(role)}
                notes={[
                  <>
                    {invited_by !== null && `by ${invited_by}, `}valid until <Time at={expires_at} />
                  </>,
                ]}
                actions={
                  <Button small variant="quiet" onClick={() => revoke.mutate(id)} busy={revoke.isPending}>
                    Revoke
                  </Button>
                }
              />
            ))}
          </ul>
        )}
      </Loaded>
      {revoke.error !== null && <ErrorPanel error={revoke.error} />}
    </div>
  )
}

function Leave({ session }: { session: Session }) {
  const members = useQuery(membersQuery)
  if ((members.data?.data.length ?? 0) < 2) return null
  return (
    <div className="mt-4 border-t border-rule pt-3">
      <ConfirmButton
        className="max-w-full"
        label={<span className="truncate">Leave {accountName(session)}</span>}
        title={`Leave ${accountName(session)}`}
        action="Leave account"
        make={() => call('DELETE /api/membership').then(() => leaveFor('/login'))}
      >
        Your sessions in this account end, and your keys and the secrets of other keys that you rotated are revoked.
        Only a new invitation lets you come back, and revoked keys cannot be restored.
      </ConfirmButton>
      <p className="text-sm text-muted">Your keys in this account will be revoked.</p>
    </div>
  )
}
