import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { call } from '../../api/call.ts'
import { changedFields } from '../../api/changed-fields.ts'
import { invitationsQuery, membersQuery } from '../../api/queries.ts'
import { hasRole, type Role, roles } from '../../api/roles.ts'
import type { Member, Session } from '../../api/shapes.ts'
import { isAmount } from '../../money/amount.ts'
import { accountName } from '../../shell/account-menu.tsx'
import { useChange } from '../../shell/use-change.ts'
import { Button } from '../../ui/button.tsx'
import { SelectField, TextField } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/form-dialog.tsx'
import { ErrorPanel, Loaded, Skeleton } from '../../ui/loaded.tsx'
import { Panel } from '../../ui/panel.tsx'
import { ShownOnceDialog } from '../../ui/shown-once-dialog.tsx'
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
  const members = useQuery(membersQuery)
  const [isInviting, setIsInviting] = useState(false)
  const [link, setLink] = useState<string>()
  return (
    <Panel
      title="Members"
      testId="members"
      actions={
        isAdmin && (
          <Button small icon="plus" onClick={() => setIsInviting(true)}>
            Invite
          </Button>
        )
      }
    >
      <Loaded query={members} skeleton={<Skeleton />}>
        {({ data }) => (
          <ul className="flex flex-col gap-3">
            {data.map((member) => (
              <MemberEntry key={member.id} member={member} session={session} />
            ))}
          </ul>
        )}
      </Loaded>
      {isAdmin && <Invitations />}
      <Leave session={session} />
      {isInviting && <InviteDialog session={session} onClose={() => setIsInviting(false)} onLink={setLink} />}
      {link !== undefined && (
        <ShownOnceDialog
          title="Invitation link"
          lead="Send this link to the person. It works once, for seven days, and anyone who has it can join. It is not shown again."
          value={link}
          whenLost="You would have to create another invitation."
          testId="invitation-link"
          onClose={() => setLink(undefined)}
        />
      )}
    </Panel>
  )
}

function MemberEntry({ member, session }: { member: Member; session: Session }) {
  const [isEditing, setIsEditing] = useState(false)
  const isMe = member.id === session.person?.id
  const mayChange = hasRole(session, 'admin') && hasRole(session, member.role)
  return (
    <li data-testid="member" className="flex items-start justify-between gap-4">
      <span className="min-w-0">
        <span className="block truncate">
          {member.name}
          {isMe && <span className="text-accent"> · you</span>}
        </span>
        <span className="block text-sm text-muted">
          {roleWords[member.role].split(':')[0]}
          {member.limit !== null && `, keys up to ${member.limit} USDC ${windowWords[member.limit_window]}`}
        </span>
        <span className="block text-sm text-muted">
          {member.last_active_at === null ? (
            'Not active yet'
          ) : (
            <>
              Last active <Time at={member.last_active_at} show="age" />
            </>
          )}
        </span>
      </span>
      {mayChange && (
        <Button small variant="quiet" onClick={() => setIsEditing(true)}>
          Edit<span className="sr-only"> {member.name}</span>
        </Button>
      )}
      {isEditing && <EditDialog member={member} session={session} onClose={() => setIsEditing(false)} />}
    </li>
  )
}

type Terms = { readonly role: Role; readonly limit: string; readonly window: Window }

function TermsFields({
  session,
  terms,
  onChange,
}: {
  session: Session
  terms: Terms
  onChange: (terms: Terms) => void
}) {
  return (
    <>
      <SelectField
        label="Role"
        value={terms.role}
        onChange={({ target }) => onChange({ ...terms, role: target.value as Role })}
      >
        {roles
          .filter((role) => hasRole(session, role))
          .map((role) => (
            <option key={role} value={role}>
              {roleWords[role]}
            </option>
          ))}
      </SelectField>
      <TextField
        label="Spending limit of the member"
        mono
        inputMode="decimal"
        placeholder="none"
        suffix="USDC"
        hint="All keys that the member creates share it. Each then needs a limit of its own with the same window."
        value={terms.limit}
        onChange={({ target }) => onChange({ ...terms, limit: target.value.trim() })}
      />
      <SelectField
        label="Limit window"
        value={terms.window}
        onChange={({ target }) => onChange({ ...terms, window: target.value as Window })}
      >
        {Object.entries(windowWords).map(([window, words]) => (
          <option key={window} value={window}>
            {words}
          </option>
        ))}
      </SelectField>
    </>
  )
}

const bodyOf = ({ role, limit, window }: Terms) => ({
  role,
  limit: limit === '' ? null : limit,
  limit_window: window,
})

function InviteDialog({
  session,
  onClose,
  onLink,
}: {
  session: Session
  onClose: () => void
  onLink: (link: string) => void
}) {
  const [terms, setTerms] = useState<Terms>({ role: 'developer', limit: '', window: 'lifetime' })
  const invite = useChange(async () => {
    const { url } = await call('createInvitation', { body: bodyOf(terms) })
    onClose()
    onLink(url)
  }, 'Invitation created.')
  return (
    <FormDialog
      title="Invite a member"
      action="Create link"
      change={invite}
      disabled={terms.limit !== '' && !isAmount(terms.limit)}
      onClose={onClose}
      ifMade="The invitation may have been created, but its link cannot be shown any more. If it is in the list of open invitations, revoke it before you create another."
    >
      <TermsFields session={session} terms={terms} onChange={setTerms} />
    </FormDialog>
  )
}

function EditDialog({ member, session, onClose }: { member: Member; session: Session; onClose: () => void }) {
  const parameters = { id: member.id }
  const [opened] = useState<Terms>({ role: member.role, limit: member.limit ?? '', window: member.limit_window })
  const [terms, setTerms] = useState(opened)
  const [isRemoving, setIsRemoving] = useState(false)
  const save = useChange(async () => {
    const body = changedFields(bodyOf(terms), bodyOf(opened))
    if (Object.keys(body).length > 0) await call('updateMember', { parameters, body })
    onClose()
  }, 'Saved.')
  const remove = useChange(async () => {
    await call('removeMember', { parameters })
    onClose()
  }, 'Member removed.')
  if (isRemoving)
    return (
      // A new `key` remounts the dialog, so it gets focus.
      <FormDialog
        key="remove"
        title={`Remove ${member.name}`}
        action="Remove member"
        variant="danger"
        change={remove}
        onClose={() => setIsRemoving(false)}
      >
        This immediately ends the member’s sessions in this account and revokes the keys that the member created and the
        secrets of other keys that the member rotated. Revoked keys cannot be restored.
      </FormDialog>
    )
  return (
    <FormDialog
      title={member.name}
      action="Save"
      change={save}
      disabled={terms.limit !== '' && !isAmount(terms.limit)}
      otherAction={
        member.id !== session.person?.id && (
          <Button variant="danger" onClick={() => setIsRemoving(true)} disabled={save.isPending}>
            Remove member
          </Button>
        )
      }
      onClose={onClose}
    >
      <TermsFields session={session} terms={terms} onChange={setTerms} />
    </FormDialog>
  )
}

function Invitations() {
  const invitations = useQuery(invitationsQuery)
  const revoke = useChange((id: string) => call('revokeInvitation', { parameters: { id } }), 'Invitation revoked.')
  if (invitations.data?.data.length === 0) return null
  return (
    <div className="mt-4 border-t border-rule pt-3">
      <h3 className="mb-2 text-sm text-muted">Open invitations</h3>
      <Loaded query={invitations} skeleton={<Skeleton lines={1} />}>
        {({ data }) => (
          <ul className="flex flex-col gap-2">
            {data.map(({ id, role, expires_at, invited_by }) => (
              <li key={id} className="flex items-start justify-between gap-4">
                <span>
                  {roleWords[role].split(':')[0]}
                  <span className="block text-sm text-muted">
                    {invited_by !== null && `by ${invited_by}, `}valid until <Time at={expires_at} />
                  </span>
                </span>
                <Button small variant="quiet" onClick={() => revoke.mutate(id)} busy={revoke.isPending}>
                  Revoke
                </Button>
              </li>
            ))}
          </ul>
        )}
      </Loaded>
      {revoke.error !== null && <ErrorPanel error={revoke.error} />}
    </div>
  )
}

function Leave({ session }: { session: Session }) {
  const [isLeaving, setIsLeaving] = useState(false)
  const leave = useChange(async () => {
    await call('leaveAccount')
    window.location.assign('/login')
  }, 'You left the account.')
  const members = useQuery(membersQuery)
  if ((members.data?.data.length ?? 0) < 2) return null
  return (
    <div className="mt-4 border-t border-rule pt-3">
      <Button small variant="quiet" className="max-w-full" onClick={() => setIsLeaving(true)}>
        <span className="truncate">Leave {accountName(session)}</span>
      </Button>
      <p className="text-sm text-muted">Your keys in this account will be revoked.</p>
      {isLeaving && (
        <FormDialog
          title={`Leave ${accountName(session)}`}
          action="Leave account"
          variant="danger"
          change={{ ...leave, isPending: leave.isPending || leave.isSuccess }}
          onClose={() => setIsLeaving(false)}
        >
          Your sessions in this account end, and your keys and the secrets of other keys that you rotated are revoked.
          Only a new invitation lets you come back, and revoked keys cannot be restored.
        </FormDialog>
      )}
    </div>
  )
}
