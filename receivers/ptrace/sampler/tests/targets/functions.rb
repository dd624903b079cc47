# Three functions with 70, 20 and 10 % of the CPU time, called by methods and blocks. Answers a line of input with the
# CPU time of each function.
$stdout.sync = true
$spent = { "seventy" => 0.0, "twenty" => 0.0, "ten" => 0.0 }

def used = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)

def seventy
  i = x = 0
  while i < 210_000
    x = (x * 31 + i) & 0xffff
    i += 1
  end
end

def twenty
  i = x = 0
  while i < 60_000
    x = (x * 33 + i) & 0xffff
    i += 1
  end
end

def ten
  i = x = 0
  while i < 30_000
    x = (x * 35 + i) & 0xffff
    i += 1
  end
end

class Clock
  def timed(name)
    start = used
    yield
    $spent[name] += used - start
  end
end

def round_of(clock)
  clock.timed("seventy") { seventy }
  clock.timed("twenty") { [1].each { twenty } }
  clock.timed("ten") { [1].map { ten } }
end

clock = Clock.new
puts "ready"
loop do
  round_of(clock)
  if IO.select([$stdin], nil, nil, 0)
    exit unless $stdin.gets
    puts $spent.map { |name, seconds| "#{name} #{seconds}" }.join(" ")
  end
end
