/** The signals that ask a process to stop: Ctrl-C, `kill` or a service manager, and a terminal that is closed. */
export const stopSignals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
