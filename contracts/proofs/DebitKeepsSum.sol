// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {Balance, Balances} from "../src/gateway/Balances.sol";
import {IUsdc} from "../src/gateway/IUsdc.sol";

/// Proof targets about `Balances` itself, with the code that is deployed: no debit makes or loses money.
contract DebitKeepsSum is Balances {
    constructor(IUsdc token_) Balances(token_) {}

    function debit(uint96 available, uint96 withdrawing, uint64 withdrawalBlock, uint256 value) external pure {
        Balance memory balance = Balance(available, withdrawing, withdrawalBlock);
        uint256 before = _total(balance);
        require(value <= before);
        (uint256 fromAvailable, uint256 fromWithdrawing) = _debit(balance, value);
        assert(fromAvailable + fromWithdrawing == value);
        assert(_total(balance) == before - value);
        assert(balance.withdrawing == 0 || balance.available == 0 || fromWithdrawing == 0);
    }
}
