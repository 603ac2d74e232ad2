# Each half of the hosts among itself, then across the cut: the bisection bandwidth.
collective = "send_recv_two_way"
pattern = "halves"
repeats = 3
sizes = "8, 1G"
warmup_iterations = 5
iterations = 20
