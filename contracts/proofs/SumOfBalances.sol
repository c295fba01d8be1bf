// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

/// A slice of the gateway for the model checker: what each depositor has in all, and nothing else. `DebitKeepsSum` proves of the deployed
/// `_debit` that it lowers a balance by the value; signatures, packing and events are left out.
contract SumOfBalances {
    uint256 private constant GATEWAY_BALANCE_MAX = type(uint96).max;

    mapping(address => uint256) private balances;
    /// What the gateway holds of the token.
    uint256 private held;
    /// The sum of all balances: every change of one is added here.
    uint256 private sum;

    function deposit(address depositor, uint256 value) external {
        require(value <= GATEWAY_BALANCE_MAX && held <= GATEWAY_BALANCE_MAX - value);
        held += value;
        balances[depositor] += value;
        sum += value;
        assert(sum == held);
        assert(held <= GATEWAY_BALANCE_MAX);
    }

    function settle(address from, address to, uint256 value) external {
        if (from == to || value > balances[from]) return;
        balances[from] -= value;
        sum -= value;
        balances[to] += value;
        sum += value;
        assert(sum == held);
    }

    function withdraw(address depositor, uint256 value) external {
        require(value <= balances[depositor]);
        balances[depositor] -= value;
        sum -= value;
        held -= value;
        assert(sum == held);
    }
}
