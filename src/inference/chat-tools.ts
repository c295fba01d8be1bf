import { toolChoiceWords, toolsMax } from './chat-parameters.ts'
import {
  InvalidValueError,
  isAbsent,
  isObject,
  type JsonObject,
  listed,
  oneOf,
  optional,
  quoted,
  readArray,
  readBoolean,
  readName,
  readObject,
  readSchema,
  readString,
  required,
  UnsupportedParameterError,
  wrongValue,
} from './parameter.ts'

export type FunctionTool = {
  readonly name: string
  readonly description?: string | undefined
  /** JSON Schema of the arguments; absent for a function without arguments. */
  readonly parameters?: JsonObject | undefined
  readonly strict: boolean
}

export type ToolChoice = (typeof toolChoiceWords)[number] | { readonly name: string }

export type ToolUse = { readonly tools: readonly FunctionTool[]; readonly toolChoice: ToolChoice }

const readChoiceWord = oneOf(toolChoiceWords)
const readMode = oneOf(['auto', 'required'])

/** The client's own tools; an empty list means none. */
export function parseTools(value: unknown): readonly FunctionTool[] {
  const entries = optional(value, 'tools', (tools, place) => readArray(tools, place, toolsMax)) ?? []
  const tools = entries.map((entry, index) => parseTool(entry, `tools[${index}]`))
  const names = tools.map(({ name }) => name)
  const repeated = names.findIndex((name, index) => names.indexOf(name) < index)
  // A call names only its tool: the client could not tell which of the two the model means.
  if (repeated !== -1) {
    const place = `tools[${repeated}].function.name`
    throw new InvalidValueError(
      `\`${place}\` is ${quoted(names[repeated]!)}, like that of an earlier tool. Give each tool its own name.`,
      place,
    )
  }
  return tools
}

function parseTool(value: unknown, place: string): FunctionTool {
  const definition = readFunctionOf(readObject(value, place), place)
  const inside = `${place}.function`
  return {
    name: required(definition.name, `${inside}.name`, readName),
    description: optional(definition.description, `${inside}.description`, readString),
    parameters: optional(definition.parameters, `${inside}.parameters`, readSchema),
    strict: optional(definition.strict, `${inside}.strict`, readBoolean) ?? false,
  }
}

/** The `function` member of a tool or of a tool choice. Other kinds of tools run on another provider's servers and are refused. */
function readFunctionOf(tool: JsonObject, place: string): JsonObject {
  const type = required(tool.type, `${place}.type`, readString)
  if (type !== 'function') {
    throw new UnsupportedParameterError(
      `\`${place}.type\` is ${quoted(type)}; only "function" tools are supported.`,
      `${place}.type`,
    )
  }
  return required(tool.function, `${place}.function`, readObject)
}

/** Which tools the model may call. `allowed_tools` is implemented by offering only the named tools. */
export function parseToolChoice(value: unknown, tools: readonly FunctionTool[]): ToolUse {
  if (isAbsent(value)) return { tools, toolChoice: 'auto' }
  if (!isObject(value)) {
    const word = readChoiceWord(value, 'tool_choice')
    if (word === 'required') refuseWithoutTools(tools, 'tool_choice')
    return { tools, toolChoice: word }
  }
  if (value.type === 'allowed_tools') return parseAllowedTools(value, tools)
  const named = readFunctionOf(value, 'tool_choice')
  return { tools, toolChoice: { name: readOfferedName(named.name, 'tool_choice.function.name', tools) } }
}

function parseAllowedTools(choice: JsonObject, tools: readonly FunctionTool[]): ToolUse {
  const place = 'tool_choice.allowed_tools'
  const allowed = required(choice.allowed_tools, place, readObject)
  const toolChoice = required(allowed.mode, `${place}.mode`, readMode)
  const entries = readArray(allowed.tools, `${place}.tools`, toolsMax)
  if (entries.length === 0) throw wrongValue(`${place}.tools`, entries, 'an array that names at least one tool')
  const names = entries.map((entry, index) => {
    const entryPlace = `${place}.tools[${index}]`
    const named = readFunctionOf(readObject(entry, entryPlace), entryPlace)
    return readOfferedName(named.name, `${entryPlace}.function.name`, tools)
  })
  return { tools: tools.filter((tool) => names.includes(tool.name)), toolChoice }
}

function readOfferedName(value: unknown, place: string, tools: readonly FunctionTool[]): string {
  const name = required(value, place, readName)
  refuseWithoutTools(tools, place)
  if (!tools.some((tool) => tool.name === name)) {
    throw wrongValue(place, name, `the name of one of the request's tools: ${listed(tools.map((tool) => tool.name))}`)
  }
  return name
}

function refuseWithoutTools(tools: readonly FunctionTool[], place: string): void {
  if (tools.length > 0) return
  throw new InvalidValueError(
    `\`${place}\` asks for a tool call, but the request has no tools of its own. Add \`tools\` or send "auto".`,
    place,
  )
}
