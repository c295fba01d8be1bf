import { z } from 'zod'

// What the suites say to the model. Directives in brackets script the sandbox: see sandbox/model/directives.ts.

export const question = 'What is a penny?'

export const callWeather = 'How is it in Paris? [sandbox:call get_weather {"city":"Paris"}]'
export const callWeatherThrice = `How is it there? ${['Paris', 'Rome', 'Oslo']
  .map((city) => `[sandbox:call get_weather {"city":"${city}"}]`)
  .join('')}`
export const cities = ['Paris', 'Rome', 'Oslo']

export const refuse = 'Write something bad. [sandbox:refuse]'
export const refusal = 'I am the Penny Router sandbox model, and I was told to refuse this.'

export const citedUrls = ['https://example.com/penny', 'https://example.com/cent']
export const cite = `Which of these is older: ${citedUrls.join(' or ')} ? [sandbox:annotate]`

/** Breaks after the reasoning, in the middle of the text. */
export const failMidway = 'Count to a hundred. [sandbox:fail-after 60]'
/** Says as much and then nothing more. */
export const stallMidway = 'Count to a hundred. [sandbox:stall-after 60]'
/** Says nothing for a while. */
export const thinkLong = 'Think about it. [sandbox:delay 150]'
/** Says nothing for longer than any test takes. */
export const staySilent = 'Take your time. [sandbox:delay 600000]'
export const upstreamDown = 'Hello? [sandbox:error 500]'

export const Weather = z.object({ city: z.string() })
export const weatherDescription = 'Tells the weather of a city.'

export function weatherIn({ city }: { readonly city: string }): string {
  return `It is sunny in ${city}.`
}

/** What strict structured output has to match. */
export const Forecast = z.object({
  city: z.string(),
  degrees: z.number().int(),
  sky: z.enum(['clear', 'cloudy']),
  hours: z.array(z.object({ hour: z.number().int(), rain: z.boolean() })),
})

export function user(content: string): { role: 'user'; content: string } {
  return { role: 'user', content }
}
