import { type FormHTMLAttributes, useState } from 'react'

/** A form that the page handles itself; the browser sends nothing and leaves the errors to the fields. */
export function Form({
  onSubmit,
  className = 'flex flex-col gap-4',
  ...rest
}: Omit<FormHTMLAttributes<HTMLFormElement>, 'onSubmit'> & { onSubmit: () => void }) {
  return (
    <form
      noValidate
      className={className}
      {...rest}
      onSubmit={(event) => {
        event.preventDefault()
        onSubmit()
      }}
    />
  )
}

/** The error of each field that has one. */
export type FormErrors<Fields> = { readonly [Name in keyof Fields]?: string | undefined }

export type FormState<Fields extends object> = ReturnType<typeof useForm<Fields>>

/** The fields of a form as typed, and what each field component needs. Errors are shown from the first submit on. */
export function useForm<Fields extends object>(
  opened: Fields,
  check: (fields: Fields) => FormErrors<Fields> = () => ({}),
) {
  const [fields, setFields] = useState(opened)
  const [tried, setTried] = useState(false)
  const errors = check(fields)
  const shown: FormErrors<Fields> = tried ? errors : {}
  const set = (changed: Partial<Fields>) => setFields((latest) => ({ ...latest, ...changed }))
  return {
    fields,
    set,
    errors: shown,
    field: <Name extends keyof Fields>(name: Name) => ({
      value: fields[name],
      error: shown[name],
      onChange: (value: Fields[Name]) => set({ [name]: value } as unknown as Partial<Fields>),
    }),
    /** Calls `send` if no field has an error. */
    submit: (send: () => void) => {
      setTried(true)
      if (Object.values(errors).every((error) => error === undefined)) send()
    },
    reset: () => {
      setFields(opened)
      setTried(false)
    },
  }
}
