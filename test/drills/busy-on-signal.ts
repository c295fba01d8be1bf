// Loaded into a process before everything else: between two SIGUSR2 its event loop is busy for 19 of 20 moments. It still answers.

const sliceMs = 100
const busyMs = 95
let timer: NodeJS.Timeout | undefined

process.on('SIGUSR2', () => {
  clearInterval(timer)
  timer = timer === undefined ? setInterval(beBusy, sliceMs) : undefined
})

function beBusy(): void {
  const end = performance.now() + busyMs
  while (performance.now() < end);
}
