import { Link, useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { places } from '../shell/navigation.ts'
import { usePageTitle } from '../shell/page.tsx'
import { Wordmark } from '../shell/rail.tsx'
import { Button } from '../ui/button.tsx'
import { TextField } from '../ui/field.tsx'
import { Form } from '../ui/form.tsx'

export function NotFoundPage() {
  usePageTitle('Not found')
  const navigate = useNavigate()
  const [text, setText] = useState('')
  const find = () => {
    if (text.trim() !== '') void navigate({ to: '/requests', search: { find: text.trim() } as never })
  }
  return (
    <main id="content" className="mx-auto flex min-h-dvh max-w-md flex-col justify-center gap-6 p-6">
      <Link to="/" className="flex items-center gap-2.5">
        <Wordmark />
      </Link>
      <div>
        <h1 className="text-2xl tracking-tight">Page not found</h1>
        <p className="mt-1 text-muted">Check the address, search for a request by its id, or choose a page below.</p>
      </div>
      <Form onSubmit={find} className="flex items-end gap-2">
        <div className="flex-1">
          <TextField
            label="Request id, completion id, receipt id or transaction"
            mono
            value={text}
            onChange={setText}
          />
        </div>
        <Button type="submit">Search</Button>
      </Form>
      <nav aria-label="Pages" className="flex flex-wrap gap-x-4 gap-y-1">
        {places.map(({ to, label }) => (
          <Link key={to} to={to} className="link">
            {label}
          </Link>
        ))}
      </nav>
    </main>
  )
}
